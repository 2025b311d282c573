package auditlog

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
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// Usage contains the methods that users called, according to an audit log.
type Usage struct {
	Calls   int // number of calls in the log
	Skipped int // number of lines that are not calls
	byUser  map[string]map[string]bool
	learned map[string]bool // users with calls that only learning mode allowed
	schema  *rpcschema.Document
}

// maxLogLine is an upper bound for the length of a line, in bytes.
const maxLogLine = 1 << 20

// ReadLearned reads the JSON audit log and collects the methods of each user's allowed calls,
// including calls that only learning mode allowed. If denied is true, it also collects those of
// denied calls.
func ReadLearned(r io.Reader, denied bool, schema *rpcschema.Document) (*Usage, error) {
	u := &Usage{byUser: map[string]map[string]bool{}, learned: map[string]bool{}, schema: schema}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		// journalctl may print the time and the host before the entry.
		_, entry, _ := bytes.Cut(lines.Bytes(), []byte("{"))
		if !u.add(append([]byte("{"), entry...), denied) && len(bytes.TrimSpace(lines.Bytes())) > 0 {
			u.Skipped++
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	if u.Calls == 0 {
		return nil, errors.New("the log contains no calls: it must be written with log.format json and log.level info, for example `journalctl -u spdk-proxy -o cat`")
	}
	return u, nil
}

// add reads a line, and reports whether it records a call.
func (u *Usage) add(line []byte, withDenied bool) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil || text(fields[keyMessage]) != message {
		return false
	}
	u.Calls++
	decision, user, method := Decision(text(fields[keyDecision])), text(fields[keyUser]), text(fields[keyMethod])
	counts := decision == Allowed || decision == Learned || withDenied && decision == Denied
	if _, known := u.schema.Method(method); !known || user == "" || !counts || string(fields[keyStatus]) == strconv.Itoa(http.StatusBadRequest) {
		return true
	}
	if u.byUser[user] == nil {
		u.byUser[user] = map[string]bool{}
	}
	u.byUser[user][method] = true
	u.learned[user] = u.learned[user] || decision == Learned
	return true
}

// text decodes a JSON string. It returns "" for any other value.
func text(value json.RawMessage) (s string) {
	_ = json.Unmarshal(value, &s)
	return s
}

// WriteRoles writes the roles that the users need, as YAML for the configuration. Users who need
// the same methods share one role.
func (u *Usage) WriteRoles(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# What %s. Remove methods that should not be allowed; globs make the list shorter.\n", u.summary())
	roles := &yaml.Node{Kind: yaml.MappingNode}
	usersOf := map[string][]string{} // keyed by the set of methods
	for _, user := range slices.Sorted(maps.Keys(u.byUser)) {
		key := strings.Join(slices.Sorted(maps.Keys(u.byUser[user])), " ")
		usersOf[key] = append(usersOf[key], user)
	}
	builtIn := policy.BuiltIn(u.schema)
	for _, key := range slices.SortedFunc(maps.Keys(usersOf), func(a, b string) int { return strings.Compare(usersOf[a][0], usersOf[b][0]) }) {
		users, methods := usersOf[key], strings.Fields(key)
		name := yamlText("learned-of-" + users[0])
		name.HeadComment = fmt.Sprintf("For %s.", names(users))
		for _, role := range []string{policy.Metrics, policy.ReadOnly, policy.CSIController} {
			if covers(builtIn[role], methods) {
				name.HeadComment += " The built-in role " + role + " has all of it."
				break
			}
		}
		if others := slices.DeleteFunc(slices.Clone(users), func(user string) bool { return u.learned[user] }); len(others) > 0 {
			name.HeadComment += fmt.Sprintf(" Learning mode passed no call of %s: compare this role with the user's present roles, which may have conditions.", names(others))
		}
		allow := &yaml.Node{Kind: yaml.SequenceNode}
		for _, m := range methods {
			allow.Content = append(allow.Content, yamlText(m))
		}
		roles.Content = append(roles.Content, name, &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{yamlText("allow"), allow}})
	}
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{yamlText("roles"), roles}}); err != nil {
		return fmt.Errorf("write roles: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// names lists users for a comment in the generated roles. It quotes names that are not a single
// word.
func names(users []string) string {
	list := make([]string, len(users))
	for i, user := range users {
		if list[i] = strconv.Quote(user); list[i] == `"`+user+`"` {
			list[i] = user
		}
	}
	return strings.Join(list, ", ")
}

func (u *Usage) summary() string {
	words := fmt.Sprintf("%d users needed for %d calls in the log", len(u.byUser), u.Calls)
	if u.Skipped > 0 {
		words += fmt.Sprintf(" (%d other lines)", u.Skipped)
	}
	return words
}

// covers reports whether a role allows all of these methods with any parameters.
func covers(role policy.Role, methods []string) bool {
	return !slices.ContainsFunc(methods, func(m string) bool {
		return !slices.ContainsFunc(role.Allow, func(r policy.Rule) bool { return r.Method == m && len(r.Where) == 0 })
	})
}

func yamlText(s string) *yaml.Node { n := &yaml.Node{}; n.SetString(s); return n }
