package drift

import (
	"fmt"
	"io"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Kind classifies a difference between the schema and SPDK.
type Kind string

// These are the kinds of differences, from the schema's point of view.
const (
	Missing  Kind = "missing"  // in SPDK, but not in the schema
	Extra    Kind = "extra"    // in the schema, but not in SPDK
	Renamed  Kind = "renamed"  // SPDK lists a name that the schema calls deprecated
	Type     Kind = "type"     // JSON type or size of an integer
	Required Kind = "required" // whether the parameter must be given
	Enum     Kind = "enum"     // the allowed values
	Count    Kind = "count"    // number of items that an array may have
	Stale    Kind = "stale"    // known.yaml explains a difference that does not exist
)

// A Difference is one place where the schema and SPDK disagree.
type Difference struct {
	Method string
	Param  string // "" means the method itself; members of objects are dotted, and items end in []
	Kind   Kind
	Detail string
	Why    string // "" if the difference is not explained
}

func (d Difference) String() string {
	where := d.Method
	if d.Param != "" {
		where += " " + d.Param
	}
	s := fmt.Sprintf("%s: %s: %s", where, d.Kind, d.Detail)
	if d.Why != "" {
		s += " (known: " + d.Why + ")"
	}
	return s
}

// A Report is the outcome of one comparison.
type Report struct {
	Subject     string // the name of the source or target
	Release     rpcschema.Release
	Compared    int // number of methods compared
	Differences []Difference
}

// Unexplained returns the differences without a known reason.
func (r *Report) Unexplained() (list []Difference) {
	for _, d := range r.Differences {
		if d.Why == "" {
			list = append(list, d)
		}
	}
	return list
}

// Write prints the unexplained differences, or all differences if all is set, one per line,
// followed by a summary.
func (r *Report) Write(w io.Writer, all bool) error {
	unexplained := r.Unexplained()
	list := unexplained
	if all {
		list = r.Differences
	}
	for _, d := range list {
		if _, err := fmt.Fprintln(w, d); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s (%s): %d methods compared, %d unexplained and %d known differences\n",
		r.Subject, r.Release, r.Compared, len(unexplained), len(r.Differences)-len(unexplained))
	return err
}
