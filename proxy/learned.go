package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// Learned is what an audit log tells of the calls that users make.
type Learned struct {
	Calls   int // that were looked at
	Skipped int // lines that are no calls
	byUser  map[string]map[string]bool
	schema  *rpcschema.Document
}

// maxLogLine is more than any line of ours.
const maxLogLine = 1 << 20

// ReadLearned reads the JSON audit log: of each user the methods of calls that
// were allowed, or let pass for learning; with denied also those that were not.
func ReadLearned(r io.Reader, denied bool, schema *rpcschema.Document) (*Learned, error) {
	l := &Learned{byUser: map[string]map[string]bool{}, schema: schema}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		// journalctl writes the time and the host before it.
		_, text, _ := bytes.Cut(lines.Bytes(), []byte("{"))
		if !l.line(append([]byte("{"), text...), denied) && len(bytes.TrimSpace(lines.Bytes())) > 0 {
			l.Skipped++
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	if l.Calls == 0 {
		return nil, errors.New("there are no calls in it: it must be the log with log.format json and log.level info, such as `journalctl -u spdk-proxy -o cat` gives it")
	}
	return l, nil
}

// line takes one in, and tells whether it is that of a call.
func (l *Learned) line(text []byte, withDenied bool) bool {
	var line struct {
		Msg, User, Method, Decision string
		Status                      int
	}
	if json.Unmarshal(text, &line) != nil || line.Msg != "call" {
		return false
	}
	l.Calls++
	counts := line.Decision == allowed || line.Decision == learned || withDenied && line.Decision == denied
	if _, known := l.schema.Method(line.Method); !known || line.User == "" || !counts || line.Status == http.StatusBadRequest {
		return true
	}
	if l.byUser[line.User] == nil {
		l.byUser[line.User] = map[string]bool{}
	}
	l.byUser[line.User][line.Method] = true
	return true
}

// WriteRoles writes the roles that the users need, in YAML for the configuration:
// users who need the same share one.
func (l *Learned) WriteRoles(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# What %s. Leave out what should not be; globs make it shorter.\n", l.inWords())
	roles := &yaml.Node{Kind: yaml.MappingNode}
	usersOf := map[string][]string{} // by what they need
	for _, user := range slices.Sorted(maps.Keys(l.byUser)) {
		key := strings.Join(slices.Sorted(maps.Keys(l.byUser[user])), " ")
		usersOf[key] = append(usersOf[key], user)
	}
	builtIn := policy.BuiltIn(l.schema)
	for _, key := range slices.SortedFunc(maps.Keys(usersOf), func(a, b string) int { return strings.Compare(usersOf[a][0], usersOf[b][0]) }) {
		users, methods := usersOf[key], strings.Fields(key)
		name := text("learned-of-" + users[0])
		name.HeadComment = fmt.Sprintf("For %q.", users)
		for _, role := range []string{policy.Metrics, policy.ReadOnly, policy.CSIController} {
			if covers(builtIn[role], methods) {
				name.HeadComment += " The built-in role " + role + " has all of it."
				break
			}
		}
		allow := &yaml.Node{Kind: yaml.SequenceNode}
		for _, m := range methods {
			allow.Content = append(allow.Content, text(m))
		}
		roles.Content = append(roles.Content, name, &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text("allow"), allow}})
	}
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text("roles"), roles}}); err != nil {
		return fmt.Errorf("write roles: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (l *Learned) inWords() string {
	words := fmt.Sprintf("%d users needed for %d calls in the log", len(l.byUser), l.Calls)
	if l.Skipped > 0 {
		words += fmt.Sprintf(" (%d other lines)", l.Skipped)
	}
	return words
}

// covers tells whether a role allows all of the methods, whatever their parameters.
func covers(role policy.Role, methods []string) bool {
	return !slices.ContainsFunc(methods, func(m string) bool {
		return !slices.ContainsFunc(role.Allow, func(r policy.Rule) bool { return r.Method == m && len(r.Where) == 0 })
	})
}

func text(s string) *yaml.Node { n := &yaml.Node{}; n.SetString(s); return n }
