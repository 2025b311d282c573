package rpcschema

import (
	"fmt"
	"regexp"
	"strconv"
)

// A Release is an SPDK release, such as v26.05. The zero Release means that the release is unknown.
type Release struct{ Year, Month int }

// Oldest is the first release that the schema covers. Methods and members present in it have no
// x-spdk-since.
var Oldest = Release{23, 1}

var releaseText = regexp.MustCompile(`^(?:SPDK )?v(\d\d)\.(\d\d)(?:[.\-\s].*)?$`)

// ParseRelease reads "v26.05" and the responses of spdk_get_version ("SPDK v26.05-pre git sha1
// 3230130e6"). A pre-release counts as its release.
func ParseRelease(s string) (Release, error) {
	m := releaseText.FindStringSubmatch(s)
	if m == nil {
		return Release{}, fmt.Errorf("%q is not an SPDK release: write it as v26.05", s)
	}
	year, _ := strconv.Atoi(m[1])
	month, _ := strconv.Atoi(m[2])
	return Release{year, month}, nil
}

// MustRelease is like ParseRelease, but panics on an error. It is for constants.
func MustRelease(s string) Release {
	r, err := ParseRelease(s)
	if err != nil {
		panic(err)
	}
	return r
}

// Known reports whether r is a known release, that is, not the zero Release.
func (r Release) Known() bool { return r != Release{} }

// Before reports whether r was released before o.
func (r Release) Before(o Release) bool {
	return r.Year < o.Year || r.Year == o.Year && r.Month < o.Month
}

func (r Release) String() string {
	if !r.Known() {
		return "unknown release"
	}
	return fmt.Sprintf("v%02d.%02d", r.Year, r.Month)
}

// MarshalText writes r in the form v26.05.
func (r Release) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses the form v26.05.
func (r *Release) UnmarshalText(b []byte) (err error) {
	*r, err = ParseRelease(string(b))
	return err
}

// A Window is the span of releases that support something, such as a method. It includes both ends.
type Window struct {
	Since Release `json:"x-spdk-since,omitzero"`
	Until Release `json:"x-spdk-until,omitzero"`
}

// Has reports whether release r is within the window. An unknown release is within every window.
func (w Window) Has(r Release) bool {
	if !r.Known() {
		return true
	}
	return !r.Before(w.Since) && (!w.Until.Known() || !w.Until.Before(r))
}

// String describes the window in words. It returns "" if the window includes every release.
func (w Window) String() string {
	switch {
	case w.Since.Known() && w.Until.Known():
		return fmt.Sprintf("SPDK %s to %s", w.Since, w.Until)
	case w.Since.Known():
		return fmt.Sprintf("SPDK %s and later", w.Since)
	case w.Until.Known():
		return fmt.Sprintf("SPDK up to %s", w.Until)
	}
	return ""
}
