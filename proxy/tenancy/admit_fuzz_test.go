package tenancy

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/tenancy/plan"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// spellings contains variants with which users might pass off a foreign name as their own.
var spellings = []func(name string) string{
	func(name string) string { return name },
	strings.ToUpper,
	strings.ToLower,
	strings.ToTitle,
	func(name string) string { return name + "\x00" },
	func(name string) string { return "red-\x00" + name },
	func(name string) string { return name + " " },
	func(name string) string { return " " + name },
	func(name string) string { return name + "\n" },
	func(name string) string { return name + "/" },
	func(name string) string { return "/" + name },
	func(name string) string { return "./" + name },
	func(name string) string { return "red-x/../" + name },
	func(name string) string { return "lvs-red/../" + name },
	func(name string) string { return "lvs-red/" + name },
	func(name string) string { return strings.ReplaceAll(name, "/", "//") },
	func(name string) string { return strings.ReplaceAll(name, "/", "\u2215") },
	func(name string) string { return strings.ReplaceAll(name, "-", "\u2010") },
	func(name string) string { return strings.ReplaceAll(name, "/", "%2F") },
	func(name string) string { return strings.ReplaceAll(name, "-", "") },
	func(name string) string { return "{" + name + "}" },
	func(name string) string { return "urn:uuid:" + name },
	func(name string) string { return "uuid:" + name },
	func(name string) string { return name + strings.Repeat("x", 300) },
	func(name string) string { return strings.Repeat("red-", 70) + name },
	func(name string) string { return strings.Replace(name, "blue", "*", 1) },
	func(name string) string { return strings.Replace(name, "blue", "b?ue", 1) },
	func(name string) string { return strings.Replace(name, "blue", "[b]lue", 1) },
	func(name string) string { return strings.Replace(name, "b", "\\b", 1) },
	func(name string) string { return strings.Replace(name, "e", "\u0435", 1) },            // Cyrillic
	func(name string) string { return strings.Replace(name, "u", "u\u0308", 1) },           // combining
	func(name string) string { return strings.Replace(name, "b", "\uff42", 1) },            // fullwidth
	func(name string) string { return "\ufeff" + name },                                    // byte order mark
	func(name string) string { return name[:len(name)/2] + "\u200b" + name[len(name)/2:] }, // zero width
}

// An admission is a call by the tenant red, with its parameters before and after admission.
type admission struct {
	*testing.T
	red   things
	grant *Grant
}

var (
	redBdev  = regexp.MustCompile(`^(red-[^/\x00-\x1f\x7f]*|lvs-red2?/[^/\x00-\x1f\x7f]+)$`)
	freshNQN = regexp.MustCompile(`^(nqn\.2014-08\.org\.nvmexpress:uuid:|iqn\.2016-06\.io\.spdk:)`)
)

// owns reports whether a name belongs to red, without using the code under test.
func (a *admission) owns(kind, name string) bool {
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) { // could end a name early
		return false
	}
	switch kind {
	case "bdev":
		return redBdev.MatchString(name) || slices.Contains([]string{a.red.volume, a.red.snapshot, a.red.mallocUUID}, name)
	case "lvstore":
		return name == "lvs-red" || name == "lvs-red2"
	case "lvstore-uuid":
		return strings.EqualFold(strings.ReplaceAll(name, "-", ""), strings.ReplaceAll(a.red.lvsUUID, "-", ""))
	case "nqn", "iqn":
		return strings.HasPrefix(name, kind+".2016-06.io.spdk:red-")
	case "key":
		return strings.HasPrefix(name, "red-")
	case "host-nqn":
		return strings.HasPrefix(name, "nqn.2014-08.org.nvmexpress:uuid:")
	}
	return false
}

// compare checks that the parameters sent to the socket equal those that package policy has
// checked, except that names that red does not own are replaced with unused names.
func (a *admission) compare(list []plan.Node, path string, saw, sent any) {
	a.Helper()
	if kinds := plan.KindsOf(list, saw); len(kinds) > 0 {
		before, isText := saw.(string)
		after, _ := sent.(string)
		for _, kind := range kinds {
			switch {
			case kind == "address":
				require.Equal(a, saw, sent, path)
				require.Equal(a, "127.0.0.1", saw.(map[string]any)["traddr"], path)
			case !isText:
				require.Fail(a, "not a name", "%s: %v", path, saw)
			case plan.IsInner(kind):
				require.Equal(a, saw, sent, path)
				require.NotContains(a, after, "\x00", path)
				require.False(a, kind == "lvol-name" && (strings.Contains(after, "/") || len(after) > 63), path)
			case plan.IsObject(kind) && before != after:
				require.False(a, a.owns(kind, before), "%s: %q does not belong to red", path, before)
				require.Equal(a, before, a.grant.hidden[after], path)
				_, err := uuid.Parse(freshNQN.ReplaceAllString(after, ""))
				require.NoError(a, err, path)
			case plan.IsObject(kind), plan.IsConfigured(kind):
				require.True(a, a.owns(kind, before), "%s: %q (%s) does not belong to red", path, before, kind)
			case plan.IsNew(kind):
				require.Equal(a, saw, sent, path)
				require.True(a, a.owns(plan.Created(kind), before), "%s: %q (%s) does not belong to red", path, before, kind)
				_, err := uuid.Parse(before)
				require.Error(a, err, path)
			default:
				require.Fail(a, "nobody's", "%s: %q (%s)", path, before, kind)
			}
		}
		return
	}
	switch saw := saw.(type) {
	case map[string]any:
		other := sent.(map[string]any)
		require.Equal(a, slices.Sorted(maps.Keys(saw)), slices.Sorted(maps.Keys(other)), path)
		for name, v := range saw {
			below, named := a.grant.scope.tenancy.plans.Member(list, name)
			require.True(a, named, "%s.%s", path, name)
			a.compare(below, path+"."+name, v, other[name])
		}
	case []any:
		other := sent.([]any)
		require.Len(a, other, len(saw), path)
		for i, v := range saw {
			a.compare(a.grant.scope.tenancy.plans.Items(list), path, v, other[i])
		}
	default:
		require.Equal(a, saw, sent, path)
	}
}

// FuzzAdmit calls Admit for calls by red to every method. Names of every kind appear in every
// position: red's own names, blue's names in all spellings, and arbitrary strings.
func FuzzAdmit(f *testing.F) {
	one := newWorld(f, "v26.05")
	red, blue := one.settle()
	methods := rpcschema.Default().Methods()
	for which := range methods {
		f.Add(uint16(which), uint64(which)*31, "red-x")
		f.Add(uint16(which), uint64(which)*77, blue.malloc)
	}
	pool := []string{"lvs-red2/x", "lvs-redx/vol", "lvs-blue/new", "red-", "red", "blue-new", "nqn.2014-08.org.nvmexpress.discovery", "", "..", "*", lostHost, redHost, "/dev/sda", "127.0.0.2"}
	pool = append(append(pool, red.secrets()...), blue.secrets()...)
	f.Fuzz(func(t *testing.T, which uint16, seed uint64, word string) {
		m := methods[int(which)%len(methods)]
		w := &world{t: t, release: one.release, socket: one.socket, tenancy: one.tenancy}
		r := rand.New(rand.NewPCG(seed, 7))
		maker := sample.Maker{Document: rpcschema.Default(), Release: w.release, Names: own(red), Full: r.IntN(3) == 0}
		params := maker.Params(m)
		for _, param := range m.Params {
			value, given := params[param.Name]
			if !given {
				continue
			}
			found := spots(w.tenancy, w.tenancy.plans.Nodes(param.Schema), param.Name, value)
			if len(found) == 0 || r.IntN(2) == 0 {
				continue
			}
			name := word
			switch r.IntN(3) {
			case 0:
				name = pool[r.IntN(len(pool))]
			case 1:
				name = spellings[r.IntN(len(spellings))](pool[r.IntN(len(pool))])
			}
			params[param.Name] = found[r.IntN(len(found))].put(name)
		}
		saw, err := decoded(plainAddresses(params))
		if err != nil || rpcschema.Default().ValidateParams(m.Name, saw, w.release) != nil {
			return
		}
		before := fmt.Sprint(saw)
		grant, err := w.tenancy.Of("alice").Admit(t.Context(), m, saw, w.ask)
		assert.Equal(t, before, fmt.Sprint(saw), "Admit does not change the client's parameters")
		var refused *Refusal
		var called *spdkrpc.Error
		if err != nil {
			require.True(t, errors.As(err, &refused) || errors.As(err, &called), "%s %v: %v", m.Name, saw, err)
			return
		}
		defer grant.Close()
		a := &admission{t, red, grant}
		for _, raised := range grant.Raised() {
			require.Equal(t, "write_zeroes", grant.Params[raised], "%s.%s", m.Name, raised)
			saw[raised] = grant.Params[raised]
		}
		require.Equal(t, slices.Sorted(maps.Keys(saw)), slices.Sorted(maps.Keys(grant.Params)))
		if w.tenancy.plans.Of(m.Name).Open {
			return
		}
		for _, p := range m.Params {
			if v, given := saw[p.Name]; given {
				a.compare(w.tenancy.plans.Nodes(p.Schema), m.Name+"."+p.Name, v, grant.Params[p.Name])
			}
		}
	})
}
