package spdkrpc

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A union marshals and unmarshals every form that the schema lists for it, and rejects values of
// other types.
func TestUnionsMarshalEachForm(t *testing.T) {
	ftl := &BdevFTLCreated{Name: "f", UUID: "50c63a6e-1a4b-4a5e-9a57-7a8b9e2f0b3c"}
	call := FrameworkConfigCall{Method: "m"}
	unions := map[string]bool{}
	for name, c := range map[string]struct {
		forms   map[string]any // values of each form, by JSON text
		refused []string
		empty   any
		into    func() any
	}{
		"BdevFTLCreateResult": {
			map[string]any{`{"name":"f","uuid":"50c63a6e-1a4b-4a5e-9a57-7a8b9e2f0b3c"}`: BdevFTLCreateResult{Object: ftl}, `"deferred"`: BdevFTLCreateResult{String: new("deferred")}},
			[]string{`1`, `[]`, `null`, `true`, `{"name":1}`}, BdevFTLCreateResult{}, func() any { return new(BdevFTLCreateResult) },
		},
		"BdevFTLPropertyValue": {
			map[string]any{`true`: BdevFTLPropertyValue{Boolean: new(true)}, `18446744073709551615`: BdevFTLPropertyValue{Integer: new(uint64(1<<64 - 1))}},
			[]string{`"1"`, `1.5`, `-1`, `null`, `[]`}, BdevFTLPropertyValue{}, func() any { return new(BdevFTLPropertyValue) },
		},
		"BdevMemoryDomainDMADeviceType": {
			map[string]any{
				`"DMA"`: BdevMemoryDomainDMADeviceType{String: new(BdevMemoryDomainDMADeviceTypeStringDMA)},
				`2`:     BdevMemoryDomainDMADeviceType{Integer: new(int32(2))},
			},
			[]string{`true`, `{}`, `2147483648`, `null`}, BdevMemoryDomainDMADeviceType{}, func() any { return new(BdevMemoryDomainDMADeviceType) },
		},
		"BdevRAIDBaseBdevEntry": {
			map[string]any{
				`"b"`: BdevRAIDBaseBdevEntry{String: new("b")},
				`{"name":null,"uuid":"u","is_configured":true,"data_offset":1,"data_size":2}`: BdevRAIDBaseBdevEntry{Object: &BdevRAIDBaseBdev{UUID: "u", IsConfigured: true, DataOffset: 1, DataSize: 2}},
			},
			[]string{`1`, `["b"]`, `{"name":1}`}, BdevRAIDBaseBdevEntry{}, func() any { return new(BdevRAIDBaseBdevEntry) },
		},
		"BdevRBDGetClustersInfoResult": {
			map[string]any{`[]`: BdevRBDGetClustersInfoResult{Array: []BdevRBDCluster{}}, `{"cluster_name":"c"}`: BdevRBDGetClustersInfoResult{Object: &BdevRBDCluster{ClusterName: "c"}}},
			[]string{`"c"`, `[1]`, `null`}, BdevRBDGetClustersInfoResult{}, func() any { return new(BdevRBDGetClustersInfoResult) },
		},
		"FrameworkConfigEntry": {
			map[string]any{`{"method":"m"}`: FrameworkConfigEntry{Object: &call}, `[{"method":"m"}]`: FrameworkConfigEntry{Array: []FrameworkConfigCall{call}}},
			[]string{`"m"`, `[[]]`, `null`}, FrameworkConfigEntry{}, func() any { return new(FrameworkConfigEntry) },
		},
		"NVMfCreateTargetDiscoveryFilter": {
			map[string]any{
				`"match_any"`:   NVMfCreateTargetDiscoveryFilter{String: new("match_any")},
				`["transport"]`: NVMfCreateTargetDiscoveryFilter{Array: NVMfDiscoveryFilters{"transport"}},
				`[]`:            NVMfCreateTargetDiscoveryFilter{Array: NVMfDiscoveryFilters{}},
			},
			[]string{`{}`, `[1]`, `0`, `null`}, NVMfCreateTargetDiscoveryFilter{}, func() any { return new(NVMfCreateTargetDiscoveryFilter) },
		},
	} {
		unions[name] = true
		t.Run(name, func(t *testing.T) {
			for text, form := range c.forms {
				into := c.into()
				require.NoError(t, json.Unmarshal([]byte(" "+text), into))
				assert.Equal(t, form, reflect.ValueOf(into).Elem().Interface(), text)
				written, err := json.Marshal(form)
				require.NoError(t, err)
				assert.JSONEq(t, text, string(written))
			}
			for _, text := range c.refused {
				assert.Error(t, c.into().(json.Unmarshaler).UnmarshalJSON([]byte(text)), text)
			}
			_, err := json.Marshal(c.empty)
			assert.ErrorContains(t, err, "0 of its fields are set: set exactly one")
		})
	}
	for _, line := range generatedLines(t, `return wrongForm\("(\w+)"`) {
		assert.True(t, unions[line], "%s has no case here", line)
	}
}

func TestUnionWithTwoFieldsIsNotSent(t *testing.T) {
	_, err := json.Marshal(BdevFTLPropertyValue{Boolean: new(true), Integer: new(uint64(1))})
	assert.ErrorContains(t, err, "cannot write a BdevFTLPropertyValue: 2 of its fields are set: set exactly one")
	_, err = NewClient(nil).NVMfCreateTarget(t.Context(), NVMfCreateTargetParams{Name: "t", DiscoveryFilter: &NVMfCreateTargetDiscoveryFilter{}})
	assert.ErrorContains(t, err, "set exactly one")
}

func TestUnionErrorsOmitTheValue(t *testing.T) {
	err := new(BdevFTLPropertyValue).UnmarshalJSON([]byte(`"secret"`))
	assert.EqualError(t, err, "cannot read a BdevFTLPropertyValue: the value is of type string: expected boolean or integer")
}

// An item of a list may be null, which is read as a nil pointer.
func TestNullUnionIsANilPointer(t *testing.T) {
	var list []*BdevRAIDBaseBdevEntry
	require.NoError(t, json.Unmarshal([]byte(`["a",null]`), &list))
	assert.Equal(t, []*BdevRAIDBaseBdevEntry{{String: new("a")}, nil}, list)
	text, err := json.Marshal(list)
	require.NoError(t, err)
	assert.Equal(t, `["a",null]`, string(text))
}

// Raw JSON is used only for objects whose members the schema does not describe, which the package
// comment lists.
func TestOnlyOpenObjectsAreRawJSON(t *testing.T) {
	assert.ElementsMatch(t, []string{
		"result map[string]json.RawMessage", "RBD map[string]json.RawMessage", "Virtio map[string]json.RawMessage",
		"Others map[string]json.RawMessage", "Others map[string]json.RawMessage", "Params map[string]json.RawMessage",
	}, generatedLines(t, `(\S+ \S*json\.RawMessage)`))
}

// generatedLines returns the strings that a pattern's group matches in the generated files.
func generatedLines(t *testing.T, pattern string) (found []string) {
	paths, err := filepath.Glob("*_gen.go")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			found = append(found, strings.TrimPrefix(string(m[1]), "("))
		}
	}
	return found
}
