package rpcschema

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exportedWords exports d for release r and returns, as JSON, how the exported document describes a
// method's rpc.py command line (x-spdk-rpcpy). It returns "" if the document does not describe it.
func exportedWords(t *testing.T, d *Document, method string, r Release) string {
	t.Helper()
	exported, err := d.Export(r, func(m *Method) bool { return m.Name == method })
	require.NoError(t, err)
	var doc struct {
		Methods []struct {
			Words json.RawMessage `json:"x-spdk-rpcpy"`
			Fails json.RawMessage `json:"x-spdk-rpcpy-fails"`
		} `json:"methods"`
	}
	require.NoError(t, json.Unmarshal(exported, &doc))
	require.Len(t, doc.Methods, 1)
	assert.Nil(t, doc.Methods[0].Fails)
	if doc.Methods[0].Words == nil {
		return ""
	}
	var words any
	require.NoError(t, json.Unmarshal(doc.Methods[0].Words, &words))
	text, err := json.Marshal(words)
	require.NoError(t, err)
	return string(text)
}

func TestRPCPyWordsDependOnTheRelease(t *testing.T) {
	d, err := Load([]byte(`{"methods": [{"name": "m", "params": [
		{"name": "nqn", "required": true, "schema": {"type": "string"}},
		{"name": "flag", "schema": {"type": "boolean"}},
		{"name": "size", "schema": {"type": "integer"}},
		{"name": "new", "schema": {"type": "integer", "x-spdk-since": "v25.05"}},
		{"name": "at", "schema": {"$ref": "#/components/schemas/Address"}}
	], "result": {"name": "r", "schema": {"type": "boolean"}}, "x-spdk-rpcpy-fails": ["v23.09"], "x-spdk-rpcpy": {
		"nqn": 1, "flag": [{"set": "-e", "clear": "-d", "until": "v25.09"}, {"set": "--flag", "sends": false, "since": "v26.01"}],
		"size": {"option": "--size", "nonzero-until": "v24.01"}, "new": "--new", "at.traddr": "-a", "at.later": "-l"
	}}, {"name": "absent", "params": [], "result": {"name": "r", "schema": {"type": "boolean"}}}], "components": {"schemas": {
		"Address": {"type": "object", "properties": {"traddr": {"type": "string"}, "later": {"type": "boolean", "x-spdk-since": "v26.05"}}}}}}`))
	require.NoError(t, err)
	for release, want := range map[string]string{
		"v23.01": `{"at.traddr":{"option":"-a"},"flag":{"clear":"-d","set":"-e"},"nqn":{"position":1},"size":{"nonzero":true,"option":"--size"}}`,
		"v23.09": "",
		"v24.05": `{"at.traddr":{"option":"-a"},"flag":{"clear":"-d","set":"-e"},"nqn":{"position":1},"size":{"option":"--size"}}`,
		"v26.01": `{"at.traddr":{"option":"-a"},"flag":{"sends":false,"set":"--flag"},"new":{"option":"--new"},"nqn":{"position":1},"size":{"option":"--size"}}`,
		"v26.05": `{"at.later":{"set":"-l"},"at.traddr":{"option":"-a"},"flag":{"sends":false,"set":"--flag"},"new":{"option":"--new"},"nqn":{"position":1},"size":{"option":"--size"}}`,
	} {
		assert.Equal(t, want, exportedWords(t, d, "m", MustRelease(release)), release)
	}
	assert.Empty(t, exportedWords(t, d, "m", Release{}), "the release is not known")
	assert.Empty(t, exportedWords(t, d, "absent", v2605))
}

func TestExportContainsRPCPyWords(t *testing.T) {
	assert.Equal(t, `{}`, exportedWords(t, Default(), "bdev_wait_for_examine", v2605), "a command without words")
	assert.Empty(t, exportedWords(t, Default(), "nvmf_get_targets", v2605), "rpc.py has no such command")
	assert.Contains(t, exportedWords(t, Default(), "nvmf_subsystem_allow_any_host", v2401), `{"clear":"--disable","set":"--enable"}`)
	assert.Contains(t, exportedWords(t, Default(), "nvmf_subsystem_allow_any_host", v2605), `{"clear":"--no-allow-any-host","set":"--allow-any-host"}`)
}
