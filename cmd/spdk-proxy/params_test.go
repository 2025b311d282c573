package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// schemaText describes an invented method, because these tests are about types rather than SPDK's
// methods.
const schemaText = `{"methods":[{"name":"m","params":[
	{"name":"text","schema":{"type":"string"}},
	{"name":"whole","schema":{"type":"integer"}},
	{"name":"number","schema":{"type":"number"}},
	{"name":"flag","schema":{"type":"boolean"}},
	{"name":"list","schema":{"type":"array","items":{"type":"string"}}},
	{"name":"numbers","schema":{"type":"array","items":{"type":"integer"}}},
	{"name":"object","schema":{"$ref":"#/components/schemas/Object"}},
	{"name":"map","schema":{"type":"object","additionalProperties":{"type":"integer"}}},
	{"name":"open","schema":{"type":"object","additionalProperties":true}},
	{"name":"either","schema":{"type":["string","integer"]}},
	{"name":"secret","schema":{"type":"string","x-spdk-sensitive":true}},
	{"name":"secrets","schema":{"type":"array","items":{"type":"string","x-spdk-sensitive":true}}},
	{"name":"users","schema":{"type":"array","items":{"type":"object","properties":{"user":{"type":"string"},"secret":{"type":"string","x-spdk-sensitive":true}}}}}
]},{"name":"bare","params":[]}],
"components":{"schemas":{"Object":{"type":"object","properties":{"inner":{"$ref":"#/components/schemas/Inner"},"name":{"type":"string"}}},
	"Inner":{"type":"object","properties":{"port":{"type":"string"},"deep":{"type":"boolean"}}}}}}`

func parse(t *testing.T, method string, args ...string) (map[string]any, error) {
	d, err := rpcschema.Load([]byte(schemaText))
	require.NoError(t, err)
	m, ok := d.Method(method)
	require.True(t, ok)
	return parseParams(m, d, args)
}

func TestParamsAreParsed(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, `null`},
		{[]string{"text=a"}, `{"text":"a"}`},
		{[]string{"text="}, `{"text":""}`},
		{[]string{"text=a=b"}, `{"text":"a=b"}`},
		{[]string{"text=7"}, `{"text":"7"}`},
		{[]string{"text=true"}, `{"text":"true"}`},
		{[]string{`text:="a\u0062"`}, `{"text":"ab"}`},
		{[]string{"text:=null"}, `{"text":null}`},
		{[]string{"text:=[1,{}]"}, `{"text":[1,{}]}`}, // the target reports the error
		{[]string{"whole=18446744073709551615"}, `{"whole":18446744073709551615}`},
		{[]string{"number=1.5"}, `{"number":1.5}`},
		{[]string{"number=1"}, `{"number":1}`},
		{[]string{"flag=true"}, `{"flag":true}`},
		{[]string{"list=a"}, `{"list":["a"]}`},
		{[]string{"list=a", "list=b"}, `{"list":["a","b"]}`},
		{[]string{"numbers=1", "numbers=2"}, `{"numbers":[1,2]}`},
		{[]string{"object.name=a", "object.inner.port=4420", "object.inner.deep=false"}, `{"object":{"name":"a","inner":{"port":"4420","deep":false}}}`},
		{[]string{`object:={"name":"a"}`}, `{"object":{"name":"a"}}`},
		{[]string{"map.a=1", "map.b=2"}, `{"map":{"a":1,"b":2}}`},
		{[]string{"open.a=x", "open.b=2"}, `{"open":{"a":"x","b":2}}`},
		{[]string{"either=7"}, `{"either":7}`},
		{[]string{"either=x"}, `{"either":"x"}`},
	} {
		got, err := parse(t, "m", c.args...)
		require.NoError(t, err, c.args)
		text, err := json.Marshal(got)
		require.NoError(t, err)
		assert.JSONEq(t, c.want, string(text), c.args)
	}
}

// Secrets are read from files, because every user of the host can read a command line.
func TestSecretsAreReadFromFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte("s3cret\r\nof no interest\n"), 0o600))
	params, err := parse(t, "m", "secret=@"+path, "secrets=@"+path, "text=@"+path)
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"secret": "s3cret", "secrets": []any{"s3cret"}, "text": "@" + path}, params)
	list := filepath.Join(t.TempDir(), "list.json")
	require.NoError(t, os.WriteFile(list, []byte(`[{"user": "a", "secret": "s3cret"}]`+"\n"), 0o600))
	params, err = parse(t, "m", "users:=@"+list)
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"users": []any{map[string]any{"user": "a", "secret": "s3cret"}}}, params)
	for _, arg := range []string{"secret=s3cret", `secret:="s3cret"`, `secret:="@` + path + `"`, "secrets=s3cret", `secrets:=["s3cret"]`, `users:=[{"secret":"s3cret"}]`, "secret=", "secret=@"} {
		_, err := parse(t, "m", arg)
		require.ErrorContains(t, err, "=@FILE", arg)
		assert.NotContains(t, err.Error(), "s3cret")
	}
	for _, file := range []string{path, list} {
		require.NoError(t, os.Chmod(file, 0o604))
	}
	for _, arg := range []string{"secret=@" + path, "secrets=@" + path, "users:=@" + list} {
		_, err = parse(t, "m", arg)
		require.ErrorContains(t, err, "every user of this host may access", arg)
	}
	require.NoError(t, os.Chmod(path, 0o600))
	_, err = parse(t, "m", "secret=@"+path+"-not")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = parse(t, "m", "users:=@"+list+"-not")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = parse(t, "m", "users:=@"+path)
	require.ErrorContains(t, err, "users: ")
	assert.NotContains(t, err.Error(), "s3cret")
}

func TestParseParamsRefusesInvalidArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"text"}, "name=value or name:=JSON"},
		{[]string{"=x"}, "name=value"},
		{[]string{":=x"}, "name=value"},
		{[]string{"txt=a"}, "m has no txt: did you mean text?"},
		{[]string{"colour=a"}, "it has text, whole"},
		{[]string{"whole=x"}, `whole must be a whole number, not "x"`},
		{[]string{"whole=1.5"}, "must be a whole number"},
		{[]string{"whole="}, "must be a whole number"},
		{[]string{"flag=yes"}, "flag must be true or false"},
		{[]string{"number=NaN"}, "must be a number"},
		{[]string{"numbers=x"}, "numbers must be a whole number"},
		{[]string{"object=x"}, "object is an object: specify its members (object.member=value)"},
		{[]string{"object.nam=x"}, "object of m has no nam: did you mean name?"},
		{[]string{"text.a=x"}, "text of m has no members: remove .a"},
		{[]string{"text=a", "text=b"}, "text is specified twice"},
		{[]string{"list=a", "list:=3"}, "list is specified twice"},
		{[]string{`object:={"name":"a"}`, "object=x"}, "object is an object"},
		{[]string{"object:=7", "object.name=x"}, "as a whole and by members"},
		{[]string{`text:={`}, "ends too early"},
		{[]string{`object:={"a":1,"a":2}`}, "occurs twice"},
	} {
		_, err := parse(t, "m", c.args...)
		require.ErrorContains(t, err, c.says, c.args)
		assert.Equal(t, exitUsage, exitCode(err))
	}
	_, err := parse(t, "bare", "x=1")
	require.ErrorContains(t, err, "bare takes no parameters: remove x")
}
