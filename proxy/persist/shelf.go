package persist

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/proxy/directory"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// These functions are for the `spdk-proxy saved` commands, which also work while a proxy is
// running.

// ErrNothingHeld means that there is no Held file, because the target contains all objects in the
// current file.
var ErrNothingHeld = errors.New("the target contained the whole saved configuration at the last comparison")

// A Saved describes a saved file.
type Saved struct {
	Name    string
	Time    time.Time
	Release string
	Calls   int
	Damaged error
	// Chosen is when an administrator chose the file for the target's next start. It is zero if the
	// file was not chosen, or if the target has loaded it.
	Chosen time.Time
}

// List describes, in this order, the current file, the file Held, the previous versions (newest
// first), and the files that were set aside.
func (f *Folder) List() ([]Saved, error) {
	list, err := f.disk.List()
	if err != nil {
		return nil, fmt.Errorf("list the saved configurations: %w", err)
	}
	var all []Saved
	for _, info := range list {
		if !strings.HasSuffix(info.Name(), ".json") || strings.HasPrefix(info.Name(), directory.Temp) {
			continue
		}
		c, damaged, err := f.load(info.Name())
		if errors.Is(err, directory.ErrSuspect) {
			damaged, err = err, nil
		}
		if err != nil {
			return nil, err
		}
		s := Saved{Name: info.Name(), Time: info.ModTime().UTC(), Damaged: damaged}
		if c != nil {
			s.Release, s.Calls = c.Saved.Release, c.calls()
			if c.Saved.Chosen != nil && s.Name == Current { // the file's time is when it was chosen, not when it was saved
				s.Chosen = c.Saved.Chosen.At
				if !c.Saved.Time.IsZero() {
					s.Time = c.Saved.Time.UTC()
				}
			}
		}
		all = append(all, s)
	}
	rank := func(s Saved) int {
		switch {
		case s.Name == Current:
			return 0
		case s.Name == Held:
			return 1
		case s.Name[0] >= '0' && s.Name[0] <= '9':
			return 2
		}
		return 3
	}
	slices.SortFunc(all, func(a, b Saved) int {
		if r := rank(a) - rank(b); r != 0 {
			return r
		}
		return b.Time.Compare(a.Time)
	})
	return all, nil
}

// Diff returns the calls that only one of the two files contains.
func (f *Folder) Diff(schema *rpcschema.Document, a, b string) (onlyA, onlyB []Call, err error) {
	var both [2]*Configuration
	for i, name := range []string{a, b} {
		if both[i], err = f.get(name); err != nil {
			return nil, nil, err
		}
	}
	c := compare(schema, both[0], both[1])
	return c.missing(both[0], both[1]), c.missing(both[1], both[0]), nil
}

func (f *Folder) get(name string) (*Configuration, error) {
	if filepath.Base(name) != name {
		return nil, fmt.Errorf("%s is not the name of a file in %s", name, f.path)
	}
	c, damaged, err := f.load(name)
	switch {
	case err != nil:
		return nil, err
	case damaged != nil:
		return nil, damaged
	case c == nil && name == Held:
		return nil, fmt.Errorf("there is no %s in %s: %w", name, f.path, ErrNothingHeld)
	case c == nil:
		return nil, fmt.Errorf("there is no %s in %s: `spdk-proxy saved list` lists the files", name, f.path)
	}
	return c, nil
}

// Prepare checks that spdk_tgt can load the current file at its start, and returns the number of
// calls in it. If there are no files yet, Prepare creates a file without calls, because without a
// file, spdk_tgt would exit (since v24.05) or start silently (before v24.05). If the current file
// is damaged, or is missing although other files exist, the error states the remedy.
func (f *Folder) Prepare() (calls int, err error) {
	unlock, err := f.disk.Lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	c, damaged, err := f.load(Current)
	switch {
	case err != nil:
		return 0, err
	case damaged != nil:
		return 0, fmt.Errorf("spdk_tgt would not start with the saved configuration: %w: choose another file with `spdk-proxy saved use NAME`", damaged)
	case c != nil:
		return c.calls(), nil
	}
	others, err := f.List()
	if err != nil {
		return 0, err
	}
	if len(others) > 0 {
		return 0, fmt.Errorf("spdk_tgt would start without its configuration: there is no %s in %s, but there are other files: choose one with `spdk-proxy saved use NAME`", Current, f.path)
	}
	return 0, f.renew(&Configuration{Subsystems: []Subsystem{}})
}
