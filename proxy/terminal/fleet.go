package terminal

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// A Fleet contains the data of a screen about several storage servers. Its JSON is for scripts.
type Fleet struct {
	Time    time.Time `json:"time"`
	Servers []Server  `json:"servers"`
}

// A Server is one storage server in a Fleet.
type Server struct {
	Name      string  `json:"name"`
	URL       string  `json:"url"`
	Attention bool    `json:"attention"` // an administrator should look at the server
	State     string  `json:"state"`     // up, the target's phase, or why there is no status
	Error     string  `json:"error,omitempty"`
	Status    *Status `json:"status,omitempty"`
}

// NewServer returns a Server with a status. If failed is not nil, it is the reason why there is no
// status, and state describes the reason in one word.
func NewServer(name, url string, s *Status, state string, failed error) Server {
	one := Server{Name: name, URL: url, State: state, Status: s}
	if failed != nil {
		one.Error, one.Status, one.Attention = failed.Error(), nil, true
		return one
	}
	if one.State = "up"; !s.Up {
		one.State = "target-" + s.State
	}
	one.Attention = !s.Up || len(s.Warnings)+len(s.broken) > 0
	return one
}

// urgency returns a server's rank. Servers with lower ranks come first.
func (s Server) urgency() int {
	switch {
	case s.Status == nil:
		return 0
	case !s.Status.Up:
		return 1
	case s.Attention:
		return 2
	}
	return 3
}

// problems counts the problems of a server whose status is known.
func (s Server) problems() int {
	if s.Status == nil {
		return 0
	}
	return len(s.Status.Warnings) + len(s.Status.broken)
}

// NewFleet returns a Fleet, sorted so that the servers most in need of attention come first.
func NewFleet(at time.Time, servers []Server) *Fleet {
	f := &Fleet{Time: at.UTC(), Servers: slices.Clone(servers)}
	slices.SortStableFunc(f.Servers, func(a, b Server) int {
		return cmp.Or(cmp.Compare(a.urgency(), b.urgency()), cmp.Compare(b.problems(), a.problems()), cmp.Compare(a.Name, b.Name))
	})
	return f
}

// Attention returns the number of servers that need attention.
func (f *Fleet) Attention() (n int) {
	for _, s := range f.Servers {
		if s.Attention {
			n++
		}
	}
	return n
}

// JSON formats the fleet for scripts.
func (f *Fleet) JSON() ([]byte, error) { return toJSON(f) }

// YAML returns the same as JSON, in YAML.
func (f *Fleet) YAML() ([]byte, error) { return toYAML(f) }

// FleetColumns lists the column titles of a fleet's table.
var FleetColumns = []string{"Server", "State", "SPDK", "Proxy", "Free", "Provisioned", "Config", "Certificate"}

// Fleet formats a fleet as a table. Each server is followed by a line for each of its warnings.
func (p Page) Fleet(f *Fleet) string {
	rows := make([][]string, len(f.Servers))
	head, widths := make([]string, len(FleetColumns)), make([]int, len(FleetColumns))
	for i, title := range FleetColumns {
		head[i], widths[i] = strings.ToUpper(title), len(title)
	}
	for i, s := range f.Servers {
		rows[i] = s.Cells()
		for k, cell := range rows[i] {
			widths[k] = max(widths[k], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	line := func(colour, text string) {
		if text = fit(text, p.Width); colour != "" {
			text = p.colour(colour, text)
		}
		b.WriteString(text + "\n")
	}
	line(bold, columns(head, widths))
	for i, s := range f.Servers {
		line([]string{red, red, yellow, ""}[s.urgency()], columns(rows[i], widths))
		for _, w := range s.Warnings() {
			line("", "  ! "+w)
		}
		for _, failed := range s.Unread() {
			line("", "  ? "+failed)
		}
	}
	line("", "")
	line("", f.Summary())
	if text := f.Incomplete(); text != "" {
		line("", "? "+text)
	}
	return b.String()
}

// Summary states how many servers there are, and how many need attention.
func (f *Fleet) Summary() string {
	return fmt.Sprintf("%s, %d %s attention", Plural(len(f.Servers), "storage server"), f.Attention(), Needs(f.Attention()))
}

// Needs returns the form of the verb "need" for n things.
func Needs(n int) string {
	if n == 1 {
		return "needs"
	}
	return "need"
}

// Incomplete describes which methods the user is not permitted to call, and on how many servers. If
// there are none, it returns "".
func (f *Fleet) Incomplete() string {
	servers, methods := f.denied()
	if servers == 0 {
		return ""
	}
	return fmt.Sprintf("incomplete for %s, because the user's roles or tenant do not permit it: %s", Plural(servers, "storage server"), strings.Join(methods, ", "))
}

// Down reports whether the server has no status, or its target is not responding.
func (s Server) Down() bool { return s.urgency() < 2 }

// Warnings returns the reason why there is no status, or the server's problems.
func (s Server) Warnings() []string {
	switch {
	case s.Error != "":
		return []string{s.Error}
	case s.Status != nil:
		return s.Status.Warnings
	}
	return nil
}

// Unread lists the data that could not be read from the server, except data that the user is not
// permitted to read.
func (s Server) Unread() []string {
	if s.Status == nil {
		return nil
	}
	return s.Status.broken
}

// words returns the display text of a status value in the JSON output, such as "not saved yet" for
// "unsaved".
func words(value string) string {
	switch Configuration(value) {
	case Unsaved:
		return "not saved yet"
	case NotKept:
		return "never saved"
	}
	return strings.ReplaceAll(value, "-", " ")
}

// Cells returns the server's values in the order of FleetColumns. An unknown value becomes a dash.
func (s Server) Cells() []string {
	row := []string{printable.String(s.Name), words(s.State), "-", "-", "-", "-", "-", "-"}
	st := s.Status
	if st == nil {
		return row
	}
	if n := s.problems(); st.Up && n > 0 {
		row[1] = "up, " + Plural(n, "warning")
	}
	row[2], row[3], row[6] = cmp.Or(st.Release, "-"), cmp.Or(printable.String(st.Proxy), "-"), cmp.Or(words(string(st.Configuration)), "-")
	if len(st.Stores) > 0 {
		var free, size uint64
		provisioned := 0.0
		for _, one := range st.Stores {
			free, size = free+one.Free, size+one.Size
			provisioned = max(provisioned, share(one.Committed, one.Size))
		}
		row[4], row[5] = bytes(free)+" of "+bytes(size), fmt.Sprintf("%.0f %%", 100*provisioned)
	}
	if st.Certificate != nil {
		row[7] = st.Certificate.Format(time.DateOnly)
	}
	return row
}

// denied returns how many servers did not permit the user to read everything, and the methods that
// they refused.
func (f *Fleet) denied() (servers int, methods []string) {
	all := map[string]bool{}
	for _, s := range f.Servers {
		if s.Status == nil || len(s.Status.denied) == 0 {
			continue
		}
		servers++
		for _, m := range s.Status.denied {
			all[m.Method] = true
		}
	}
	return servers, slices.Sorted(maps.Keys(all))
}

// columns formats one row of a table.
func columns(cells []string, widths []int) string {
	var b strings.Builder
	for i, cell := range cells {
		b.WriteString(cell)
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
	}
	return b.String()
}
