package tenancy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// filtered returns the methods whose results package tenancy filters.
func filtered(t *Tenancy) []*rpcschema.Method {
	return slices.DeleteFunc(rpcschema.Default().Methods(), func(m *rpcschema.Method) bool {
		p := t.plans.Of(m.Name)
		return p.Refusal != "" || p.Open
	})
}

// redGrant returns the Grant for a call by red to a method with a filtered result.
func redGrant(t *Tenancy, m *rpcschema.Method, owned bool) *Grant {
	scope := t.Of("alice")
	return &Grant{scope: scope, method: m, plan: t.plans.Of(m.Name), ownership: &ownershipCheck{scope: scope, ask: oracle}, owned: owned}
}

// once decodes JSON with repeated members. It keeps either the first or the last occurrence of each
// member.
func once(dec *jsontext.Decoder, last bool) (any, error) {
	switch dec.PeekKind() {
	case '{':
		_, _ = dec.ReadToken()
		object := map[string]any{}
		for dec.PeekKind() != '}' {
			name, err := dec.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String()
			v, err := once(dec, last)
			if err != nil {
				return nil, err
			}
			if _, stands := object[key]; last || !stands {
				object[key] = v
			}
		}
		_, err := dec.ReadToken()
		return object, err
	case '[':
		_, _ = dec.ReadToken()
		list := []any{}
		for dec.PeekKind() != ']' {
			v, err := once(dec, last)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.ReadToken()
		return list, err
	}
	text, err := dec.ReadValue()
	if err != nil {
		return nil, err
	}
	return jsonrpc.DecodeValue(slices.Clone(text), jsonrpc.Limits{})
}

// same compares JSON, ignoring the order of members. Numbers must be spelled identically.
func same(t *testing.T, want, got json.RawMessage, method string, text []byte) {
	t.Helper()
	a, err := jsonrpc.DecodeValue(want, jsonrpc.Limits{})
	require.NoError(t, err)
	b, err := jsonrpc.DecodeValue(got, jsonrpc.Limits{})
	require.NoError(t, err)
	require.Equal(t, a, b, "%s: %s", method, text)
}

// FuzzFilterAnyJSON passes arbitrary text to the filter of any method. The filter must never panic.
// From valid JSON, it must produce the same valid JSON as the reference. If the text contains
// repeated members, the reference must find nothing to remove from the output, whichever of the
// members a client reads.
func FuzzFilterAnyJSON(f *testing.F) {
	tenancy, err := New([]Tenant{redTenant(), blueTenant()}, map[string]string{"alice": "red"}, rpcschema.Default(), nil)
	require.NoError(f, err)
	methods := filtered(tenancy)
	named := func(name string) uint16 {
		return uint16(slices.IndexFunc(methods, func(m *rpcschema.Method) bool { return m.Name == name }))
	}
	for _, seed := range []string{
		string(listOf(2, 1, lvolBdev)), `[{"name":"red-disk","name":"f0e1"}]`, `[{"name":"f0e1","name":"red-disk","product_name":"f0e1"}]`,
		`[{"name":"red-disk","aliases":["f0e1","red-a",null,{}],"aliases":["red-b"]}]`, `[ { "name" : "red\u002ddisk" , "n\u0061me":"red-disk" , "uuid": 7 } , 1 ]`,
		`[{"name":"red-\ud800"},{"name":"red-\xff","product_name":"\xff"}]`, `[{"name":"red-disk","num_blocks":1e400,"block_size":18446744073709551616}]`,
		strings.Repeat("[", 99) + strings.Repeat("]", 99), strings.Repeat(`[{"name":"red-x","driver_specific":`, 9) + "1" + strings.Repeat("}]", 9),
		`[{"name":null,"name":"red-disk"}]`, `null`, `"red-disk"`, `{}`, `[[]]`, `[{"name":"red-disk"`, `[{"name":"red-disk"]`, "\x00", `[,]`, `[{"":{}}]`, ``,
	} {
		f.Add(named("bdev_get_bdevs"), []byte(seed), false)
		f.Add(named("nvmf_get_subsystems"), []byte(strings.NewReplacer(`"name"`, `"nqn"`, "red-", "nqn.2016-06.io.spdk:red-").Replace(seed)), false)
	}
	f.Add(named("bdev_lvol_get_lvols"), []byte(listOf(3, 1, lvolItem)), true)
	f.Add(named("notify_get_notifications"), []byte(`[{"type":"bdev_register","ctx":"`+lvolUUID(redStore, 1)+`","id":1},{"type":"bdev_register","ctx":"red-disk","id":2}]`), false)
	f.Fuzz(func(t *testing.T, which uint16, text []byte, owned bool) {
		m := methods[int(which)%len(methods)]
		kept, err := redGrant(tenancy, m, owned).Answer(t.Context(), text, nil)
		lenient := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
		if !jsontext.Value(text).IsValid(lenient...) {
			return // SPDK's response was parsed before it reached the filter
		}
		if err != nil {
			var refused *Refusal
			require.ErrorAs(t, err, &refused, "%s", text)
			return
		}
		if tenancy.plans.Of(m.Name).Raw && owned {
			assert.Equal(t, string(text), string(kept))
			return
		}
		require.True(t, jsontext.Value(kept).IsValid(jsontext.AllowDuplicateNames(true)), "%s leaves %s of %s", m.Name, kept, text)
		var limit *jsonrpc.LimitError
		if _, err := once(jsontext.NewDecoder(strings.NewReader(string(kept)), lenient...), false); errors.As(err, &limit) {
			return // contains numbers that the reference cannot read
		}
		if _, err := jsonrpc.DecodeValue(text, jsonrpc.Limits{}); err == nil && !(m.Name == "bdev_get_bdevs" || m.Name == "bdev_lvol_get_lvols") {
			want, seen, err := referenceOf(t.Context(), redGrant(tenancy, m, owned), text)
			require.NoError(t, err)
			require.True(t, seen)
			same(t, want, kept, m.Name, text)
		}
		for _, last := range []bool{false, true} {
			v, err := once(jsontext.NewDecoder(strings.NewReader(string(kept)), lenient...), last)
			require.NoError(t, err)
			left, err := jsonrpc.Marshal(v)
			require.NoError(t, err)
			want, seen, err := referenceOf(t.Context(), redGrant(tenancy, m, owned), left)
			require.NoError(t, err)
			require.True(t, seen, "%s leaves %s of %s", m.Name, kept, text)
			same(t, want, left, m.Name, text)
		}
	})
}

// FuzzFilterKeepsOwnItems inserts arbitrary JSON next to the tenant's own items. The filter must
// keep the tenant's items byte for byte.
func FuzzFilterKeepsOwnItems(f *testing.F) {
	tenancy, err := New([]Tenant{redTenant(), blueTenant()}, map[string]string{"alice": "red"}, rpcschema.Default(), nil)
	require.NoError(f, err)
	m, _ := rpcschema.Default().Method("nvmf_get_subsystems")
	const own = `{"nqn":"nqn.2016-06.io.spdk:red-1","subtype":"NVMe","listen_addresses":[{"trtype":"TCP","adrfam":"IPv4","traddr":"127.0.0.1","trsvcid":"4420"}],` +
		` "allow_any_host" : false,"hosts":[ {"nqn":"` + redHost + `"} ],"serial_number":"\u0053\/ü","model_number":"M","max_namespaces":18446744073709551615,"min_cntlid":1.50e0,` +
		"\n" + `"namespaces":[{"nsid":1,"bdev_name":"red-disk","bdev_name":"red-disk","name":"lvs-red/v"}]}`
	for _, seed := range []string{`1`, `{}`, `[]`, `{"nqn":"nqn.2016-06.io.spdk:red-2"}`, `{"nqn":"nqn.2016-06.io.spdk:f0e1","namespaces":[{}]}`, `"]"`, `"\"}"`, `"\\"`, `{"a":"}"}`} {
		f.Add([]byte(seed), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, before, after []byte) {
		for _, side := range [][]byte{before, after} {
			if !json.Valid(side) {
				t.Skip()
			}
		}
		text := fmt.Sprintf("[%s,%s ,%s]", before, own, after)
		kept, err := redGrant(tenancy, m, false).Answer(t.Context(), json.RawMessage(text), nil)
		require.NoError(t, err)
		require.Contains(t, string(kept), own)
		alone, err := redGrant(tenancy, m, false).Answer(t.Context(), json.RawMessage("["+own+"]"), nil)
		require.NoError(t, err)
		require.Equal(t, "["+own+"]", string(alone))
	})
}
