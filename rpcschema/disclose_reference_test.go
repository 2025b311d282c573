package rpcschema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// referenceRedaction redacts a decoded value by reading the schema directly.
func (d *Document) referenceRedaction(use []*Schema, v any) any {
	forms, sensitive := d.forms(use, 0)
	if sensitive || len(forms) == 0 {
		if _, text := v.(string); text {
			return Redacted
		}
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		clean := make(map[string]any, len(v))
		for name, member := range v {
			known := membersOf(forms, name)
			if len(known) == 0 {
				for _, s := range forms {
					if s.Additional.Schema != nil {
						known = append(known, s.Additional.Schema)
					}
				}
			}
			if len(known) > 0 {
				clean[name] = d.referenceRedaction(known, member)
			}
		}
		return clean
	case []any:
		var items []*Schema
		for _, s := range forms {
			if s.Items != nil {
				items = append(items, s.Items)
			}
		}
		clean := make([]any, len(v))
		for i, item := range v {
			clean[i] = d.referenceRedaction(items, item)
		}
		return clean
	}
	return v
}

// FuzzRedactResult compares the redaction of arbitrary JSON with that of the decoded value. If a
// member is duplicated, the test compares its first and its last occurrence, because clients may
// use either.
func FuzzRedactResult(f *testing.F) {
	methods := slices.DeleteFunc(Default().Methods(), func(m *Method) bool { return !Default().Discloses(m) })
	for i := range methods {
		for _, seed := range []string{
			`[{"name":"k","key":"s","key2":"s","key":"t","n\u0061me":1,"else":{"key":"s"}}]`, `{"key":"s"}`, `"s"`, `null`, `[]`, `{}`, ` [ 1 , "s" ] `,
			`[{"method":"m","params":{"key":"s"}},[{"method":"m","params":null}]]`,
			`[{"name":"i","num_blocks":18446744073709551615,"driver_specific":{"x":1,"iscsi":{"initiator_name":"n","url":"u"},"rbd":{"config":{"key":"x"}}}},{"driver_specific":null}]`,
			`{"subsystems":[{"subsystem":"bdev","config":[{"method":"m","params":{"a":[{}]}}]}]}`, "[\"\xff\",{\"\xff\":1}]", `[{"name":"\ud800"}]`, strings.Repeat(`[{"driver_specific":`, 9) + "1" + strings.Repeat("}]", 9),
		} {
			f.Add(uint16(i), []byte(seed))
		}
	}
	lenient := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	f.Fuzz(func(t *testing.T, which uint16, text []byte) {
		m := methods[int(which)%len(methods)]
		got, err := Default().RedactResult(m.Name, slices.Clone(text))
		if !jsontext.Value(text).IsValid(lenient...) {
			return // not JSON
		}
		require.NoError(t, err, "%s", text)
		require.True(t, jsontext.Value(got).IsValid(lenient...), "%s: %s of %s", m.Name, got, text)
		if v, err := jsonrpc.DecodeValue(text, jsonrpc.Limits{}); err == nil {
			want, err := jsonrpc.Marshal(Default().referenceRedaction([]*Schema{m.Result.Schema}, v))
			require.NoError(t, err)
			requireSame(t, want, got, "%s: %s", m.Name, text)
		}
		for _, last := range []bool{false, true} {
			v, err := oneOfEach(jsontext.NewDecoder(strings.NewReader(string(got)), lenient...), last)
			if err != nil {
				return // such as a number that the reference cannot decode
			}
			left, err := jsonrpc.Marshal(v)
			require.NoError(t, err)
			want, err := jsonrpc.Marshal(Default().referenceRedaction([]*Schema{m.Result.Schema}, v))
			require.NoError(t, err)
			requireSame(t, want, left, "%s leaves %s of %s", m.Name, got, text)
		}
	})
}

func requireSame(t *testing.T, want, got json.RawMessage, format string, args ...any) {
	t.Helper()
	a, err := jsonrpc.DecodeValue(want, jsonrpc.Limits{})
	require.NoError(t, err)
	b, err := jsonrpc.DecodeValue(got, jsonrpc.Limits{})
	require.NoError(t, err)
	require.Equal(t, a, b, fmt.Sprintf(format, args...))
}

// oneOfEach decodes JSON, keeping only the first or the last occurrence of duplicate members.
func oneOfEach(dec *jsontext.Decoder, last bool) (any, error) {
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
			v, err := oneOfEach(dec, last)
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
			v, err := oneOfEach(dec, last)
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

// BenchmarkRedactResult redacts a list of 1,000 bdevs, as in a response to a read-only user.
func BenchmarkRedactResult(b *testing.B) {
	list := []byte("[")
	for i := range 1000 {
		list = fmt.Appendf(list, `%s{"name":"m%d","aliases":["lvs0/v%d"],"product_name":"Logical Volume","block_size":4096,"num_blocks":262144,"uuid":"8aa0b3a4-0000-4000-8000-%012d",`+
			`"assigned_rate_limits":{"rw_ios_per_sec":0,"rw_mbytes_per_sec":0,"r_mbytes_per_sec":0,"w_mbytes_per_sec":0},"claimed":true,"claim_type":"exclusive_write","zoned":false,`+
			`"supported_io_types":{"read":true,"write":true,"unmap":true,"flush":false,"reset":true,"nvme_admin":false,"nvme_io":false,"nvme_io_md":false,"write_zeroes":true,"zcopy":false,"abort":false,"copy":false},`+
			`"memory_domains":[{"dma_device_id":"system","dma_device_type":1}],`+
			`"driver_specific":{"iscsi":{"initiator_name":"n","url":"iscsi://u%%p@h/t"},"lvol":{"lvol_store_uuid":"8aa0b3a4-0000-4000-8000-000000000001","base_bdev":"aio0","thin_provision":true,"num_allocated_clusters":0,"snapshot":false,"clone":false,"esnap_clone":false}}}`,
			map[bool]string{true: ",", false: ""}[i > 0], i, i, i)
	}
	list = append(list, ']')
	b.SetBytes(int64(len(list)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Default().RedactResult("bdev_get_bdevs", list); err != nil {
			b.Fatal(err)
		}
	}
}
