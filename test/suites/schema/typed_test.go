package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

var typedMethod = regexp.MustCompile(`func \(c \*Client\) (\w+)\(ctx context\.Context[^{]*\{\n\t(?:err = |return )c\.(?:call|confirm)\(ctx, "(\w+)"`)

// typedMethods maps SPDK's method names to those of the generated client.
var typedMethods = sync.OnceValues(func() (map[string]string, error) {
	names := map[string]string{}
	paths, err := filepath.Glob("../../../rpcschema/spdkrpc/*_gen.go")
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, m := range typedMethod.FindAllSubmatch(source, -1) {
			names[string(m[2])] = string(m[1])
		}
	}
	return names, nil
})

// callTyped calls the client's typed method with decoded values as parameters. It returns the
// result as a decoded value: nil for a confirmation.
func callTyped(ctx context.Context, t *testing.T, c *spdkrpc.Client, m *rpcschema.Method, params map[string]any) (any, error) {
	names, err := typedMethods()
	require.NoError(t, err)
	f := reflect.ValueOf(c).MethodByName(names[m.Name])
	require.True(t, f.IsValid(), "the client has no method for %s", m.Name)
	in := []reflect.Value{reflect.ValueOf(ctx)}
	if len(m.Params) > 0 {
		p := reflect.New(f.Type().In(1))
		recode(t, params, p.Interface())
		in = append(in, p.Elem())
	}
	out := f.Call(in)
	if err, _ := out[len(out)-1].Interface().(error); err != nil || len(out) == 1 {
		return nil, err
	}
	return values(t, out[0].Interface()), nil
}

// recode converts a value to a Go type, which must have a field for every member.
func recode(t *testing.T, from, to any) {
	text, err := jsonrpc.Marshal(from)
	require.NoError(t, err)
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(to), "%s into %T", text, to)
}

// values converts any Go value to the form that jsonrpc.DecodeValue returns.
func values(t *testing.T, from any) any {
	text, err := jsonrpc.Marshal(from)
	require.NoError(t, err)
	v, err := jsonrpc.DecodeValue(text, jsonrpc.Limits{})
	require.NoError(t, err)
	return v
}

// zeros copies a value and replaces the values inside with Go's zero values, so that tests can
// distinguish present members from absent ones.
func zeros(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			out[name] = zeros(member)
		}
		return out
	case []any:
		return []any{}
	case json.Number:
		return json.Number("0")
	case string:
		return ""
	case bool:
		return false
	}
	return v
}

func text(t *testing.T, v any) json.RawMessage {
	b, err := jsonrpc.Marshal(v)
	require.NoError(t, err)
	return b
}

// bare returns parameters in their form on the wire: nil if there are none, unless the method needs
// an empty object.
func bare(m *rpcschema.Method, params map[string]any) any {
	if params = m.Bare(params); params == nil {
		return nil
	}
	return params
}

func where(m *rpcschema.Method, variant string, r rpcschema.Release) string {
	return fmt.Sprintf("%s, %s, %s", m.Name, variant, r)
}
