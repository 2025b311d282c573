package check

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

var v2605 = rpcschema.MustRelease("v26.05")

func read(t *testing.T, r rpcschema.Release, text string) *Report {
	report, err := Checker{Document: rpcschema.Default(), Release: r}.Read("f", strings.NewReader(text))
	require.NoError(t, err)
	return report
}

func lines(r *Report) (out []string) {
	for _, v := range r.Violations {
		out = append(out, v.String())
	}
	return out
}

func TestEachInputFormIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		text                   string
		calls, results, errors int
	}{
		"nothing":                      {"", 0, 0, 0},
		"a call":                       {`{"method":"bdev_lvol_delete","params":{"name":"a"}}`, 1, 0, 0},
		"no parameters":                {`{"method":"spdk_get_version"}`, 1, 0, 0},
		"null parameters":              {`{"method":"bdev_wait_for_examine","params":null}`, 1, 0, 0},
		"call and result":              {`{"method":"bdev_lvol_delete","params":{"name":"a"},"result":true}`, 1, 1, 0},
		"call and error":               {`{"method":"bdev_lvol_delete","params":{"name":"a"},"error":{"code":-19,"message":"No such device"}}`, 1, 0, 1},
		"a list":                       {`[{"method":"spdk_get_version"},` + "\n" + `{"method":"spdk_get_version"}]`, 2, 0, 0},
		"lines":                        {"{\"method\":\"spdk_get_version\"}\n\n{\"method\":\"bdev_lvol_delete\",\"params\":{\"name\":\"a\"}}\n", 2, 0, 0},
		"request and response":         {`{"jsonrpc":"2.0","id":1,"method":"bdev_lvol_delete","params":{"name":"a"}} {"jsonrpc":"2.0","id":1,"result":true}`, 1, 1, 0},
		"responses in another order":   {`{"id":1,"method":"bdev_lvol_delete","params":{"name":"a"}}{"id":"1","method":"bdev_get_bdevs"}{"id":"1","result":[]}{"id":1,"result":true}`, 2, 2, 0},
		"request without id":           {`{"method":"bdev_lvol_delete","params":{"name":"a"}}{"id":1,"result":true}`, 1, 1, 0},
		"configuration":                {`{"subsystems":[{"subsystem":"bdev","config":[{"method":"bdev_set_options","params":{}},{"method":"bdev_wait_for_examine"}]},{"subsystem":"vmd","config":null}]}`, 2, 0, 0},
		"a deprecated name":            {`{"method":"get_lvol_stores","params":{"lvs_name":"a"}}`, 1, 0, 0},
		"pretty, over lines":           {"{\n \"method\": \"spdk_get_version\"\n}\n", 1, 0, 0},
		"list of request and response": {`[{"id":1,"method":"bdev_lvol_delete","params":{"name":"a"}},{"id":1,"result":true}]`, 1, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := read(t, v2605, c.text)
			assert.Empty(t, lines(r))
			assert.Equal(t, [3]int{c.calls, c.results, c.errors}, [3]int{r.Calls, r.Results, r.Errors})
		})
	}
}

func TestViolationsAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"missing parameter": {`{"method":"bdev_lvol_delete","params":{}}`, []string{"f:1: bdev_lvol_delete: /params/name: is required"}},
		"on its line": {"\n\n[\n {\"method\":\"spdk_get_version\"},\n\n {\"method\":\"bdev_lvol_delete\"}\n]",
			[]string{"f:6: bdev_lvol_delete: /params/name: is required"}},
		"old parameter": {`{"method":"bdev_lvol_create","params":{"lvol_name":"a","lvs_name":"l","size":5}}`, []string{
			"f:1: bdev_lvol_create: /params/size_in_mib: is required",
			"f:1: bdev_lvol_create: /params/size: bdev_lvol_create has this parameter in SPDK up to v24.01, but the target runs v26.05: give size_in_mib instead, which is size / 1048576"}},
		"wrong result":             {`{"method":"bdev_lvol_delete","params":{"name":"a"},"result":"yes"}`, []string{"f:1: bdev_lvol_delete: /result: must be boolean, not string"}},
		"deep in a result":         {`{"method":"bdev_lvol_get_lvstores","result":[{"bogus":1}]}`, nil},
		"unknown method":           {`{"method":"bdev_lvol_delet"}`, []string{`f:1: bdev_lvol_delet: /params: unknown method "bdev_lvol_delet": did you mean bdev_lvol_delete?`}},
		"method of old":            {`{"method":"bdev_pmem_delete","params":{"name":"a"}}`, []string{"f:1: bdev_pmem_delete: /params: method bdev_pmem_delete exists in SPDK up to v23.01, but the target runs v26.05: SPDK no longer has bdevs on PMDK; copy the data to another bdev with a release that has them"}},
		"both":                     {`{"method":"spdk_get_version","result":{},"error":{"code":1,"message":""}}`, []string{"f:1: spdk_get_version: must have a result or an error, not both"}},
		"unknown member":           {`{"method":"spdk_get_version","parms":{}}`, []string{"f:1: /parms: unknown member: the members of a call are jsonrpc, id, method, params, result, error"}},
		"parameters in row":        {`{"method":"spdk_get_version","params":[1]}`, []string{"f:1: spdk_get_version: /params: must be an object of named parameters, not an array"}},
		"no method":                {`{"params":{}}`, []string{"f:1: not a call or a response: it has no method, result or error"}},
		"method no string":         {`{"method":5}`, []string{"f:1: /method: must be the name of a method"}},
		"response without request": {`{"id":1,"result":true}`, []string{"f:1: /id: no request with this id comes before this response"}},
		"bad error": {`{"method":"spdk_get_version","error":{"code":1.5}}`, []string{
			"f:1: spdk_get_version: /error/code: must be an integer", "f:1: spdk_get_version: /error/message: must be a string"}},
		"error is text": {`{"method":"spdk_get_version","error":"no"}`, []string{"f:1: spdk_get_version: /error: must be an object with code and message, not a string"}},
		"no object":     {`[1,"a"]`, []string{"f:1: a call or a response must be an object, not a number", "f:1: a call or a response must be an object, not a string"}},
		"twice":         {`{"method":"spdk_get_version","method":"bdev_get_bdevs"} {"method":"bdev_lvol_delete"}`, []string{"f:1: member /method occurs twice in one object: duplicate object member name", "f:1: bdev_lvol_delete: /params/name: is required"}},
		"not JSON":      {"{\"method\":\"spdk_get_version\"}\n{\"method\":", nil},
		"bad configuration": {`{"subsystems":[{"subsystem":"bdev","config":[{"method":"bdev_aio_create","params":{"name":"a"}},5]},{"config":7},3]}`, []string{
			"f:1: bdev_aio_create: /subsystems/0/config/0/params/filename: is required", "f:1: /subsystems/0/config/1: a call must be an object, not a number",
			"f:1: /subsystems/1: must be an object with subsystem and config, a list of calls", "f:1: /subsystems/2: must be an object with subsystem and config, a list of calls"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := read(t, v2605, c.text)
			require.NotEmpty(t, r.Violations)
			if c.want != nil {
				assert.Equal(t, c.want, lines(r))
			}
		})
	}
	broken := lines(read(t, v2605, "{\"method\":\"spdk_get_version\"}\n{\"method\":"))
	require.Len(t, broken, 1)
	assert.Contains(t, broken[0], "f:2: not valid JSON")
	assert.Contains(t, broken[0], "nothing after it was checked")
}

// If no release is given, a call is valid if any release accepts it.
func TestCallsOfAnyReleaseAreValidWithoutARelease(t *testing.T) {
	assert.Empty(t, lines(read(t, rpcschema.Release{}, `{"method":"bdev_lvol_create","params":{"lvol_name":"a","lvs_name":"l","size":5}}{"method":"bdev_pmem_delete","params":{"name":"a"}}`)))
}

func TestReportsContainNoSecrets(t *testing.T) {
	r := read(t, v2605, `{"method":"accel_crypto_key_create","params":{"cipher":"AES_XTS","key":["hush-hush"],"name":"k"},"result":"hush-hush"}`)
	require.NotEmpty(t, r.Violations)
	assert.NotContains(t, strings.Join(lines(r), "\n"), "hush")
}

func TestReportsAreWrittenAndAdded(t *testing.T) {
	total := &Report{}
	total.Add(read(t, v2605, `{"method":"bdev_lvol_delete","result":false}`))
	total.Add(read(t, v2605, `{"method":"spdk_get_version","error":{"code":-1,"message":"m"}}`))
	var b strings.Builder
	require.NoError(t, total.Write(&b))
	assert.Equal(t, `f:1: bdev_lvol_delete: /params/name: is required
f:1: bdev_lvol_delete: /result: must be true
2 calls, 1 results and 1 errors checked, 2 violations
`, b.String())
}

func TestUnreadableInputIsAnError(t *testing.T) {
	_, err := Checker{Document: rpcschema.Default()}.Read("f", iotest.ErrReader(errors.New("gone")))
	assert.ErrorContains(t, err, "read f: gone")
}

func FuzzRead(f *testing.F) {
	f.Add(`{"method":"bdev_lvol_delete","params":{"name":"a"},"result":true}`)
	f.Add(`[{"id":1,"method":"spdk_get_version"},{"id":1,"error":{"code":1,"message":""}}]`)
	f.Add(`{"subsystems":[{"config":[{"method":"x"}]}]}`)
	f.Add("{\"method\":\n\n5}]]")
	f.Fuzz(func(t *testing.T, text string) {
		r := read(t, v2605, text)
		for _, v := range r.Violations {
			if v.Line < 1 || v.Line > 1+strings.Count(text, "\n") {
				t.Fatalf("line %d of %d", v.Line, 1+strings.Count(text, "\n"))
			}
		}
	})
}
