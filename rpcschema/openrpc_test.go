package rpcschema

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// openRPC returns a schema that describes the structure of OpenRPC documents.
func openRPC(t *testing.T) *jsonschema.Schema {
	text, err := os.ReadFile("testdata/openrpc-1.3.yaml")
	require.NoError(t, err)
	var structure any
	require.NoError(t, yaml.Unmarshal(text, &structure))
	asJSON, err := json.Marshal(structure)
	require.NoError(t, err)
	resource, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("spdk:///openrpc-1.3", resource))
	s, err := c.Compile("spdk:///openrpc-1.3")
	require.NoError(t, err)
	return s
}

func TestDocumentIsOpenRPC(t *testing.T) {
	s := openRPC(t)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(OpenRPC))
	require.NoError(t, err)
	require.NoError(t, s.Validate(document))
	for _, r := range []Release{Oldest, v2401, v2605} {
		text, err := Default().Export(r, nil)
		require.NoError(t, err)
		exported, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		require.NoError(t, err)
		assert.NoError(t, s.Validate(exported), "as exported for %s", r)
	}
}

func TestOpenRPCSchemaDetectsMistakes(t *testing.T) {
	s := openRPC(t)
	const head, tail = `{"openrpc":"1.3.2","info":{"title":"t","version":"1"},"methods":[`, `]}`
	for name, c := range map[string]struct {
		method string
		valid  bool
	}{
		"sound":               {`{"name":"m","params":[],"result":{"name":"r","schema":{"type":"boolean"}}}`, true},
		"no result":           {`{"name":"m","params":[]}`, false},
		"params by name":      {`{"name":"m","params":{},"result":{"name":"r","schema":{"type":"boolean"}}}`, false},
		"no schema":           {`{"name":"m","params":[{"name":"p"}],"result":{"name":"r","schema":{"type":"boolean"}}}`, false},
		"comma in a text":     {`{"name":"m","params":[],"result":{"name":"r","schema":{"type":"boolean"}},"errors":[{"code":-1,"message":"No","not so":null}]}`, false},
		"comma in a schema":   {`{"name":"m","params":[],"result":{"name":"r","schema":{"type":"boolean","description":"Yes","or no":null}}}`, false},
		"unknown type":        {`{"name":"m","params":[],"result":{"name":"r","schema":{"type":"bool"}}}`, false},
		"reference elsewhere": {`{"name":"m","params":[],"result":{"name":"r","schema":{"$ref":"other.json"}}}`, false},
		"unknown release":     {`{"name":"m","x-spdk-since":"v24.02","params":[],"result":{"name":"r","schema":{"type":"boolean"}}}`, false},
		"nothing said":        {`{"name":"m","params":[],"result":{"name":"r","schema":{}}}`, false},
		"bad pattern":         {`{"name":"m","params":[],"result":{"name":"r","schema":{"type":"string","pattern":"(["}}}`, false},
	} {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(head + c.method + tail)))
		require.NoError(t, err)
		assert.Equal(t, c.valid, s.Validate(document) == nil, name)
	}
}
