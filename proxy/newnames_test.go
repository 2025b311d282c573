package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// unsafeNames returns one name for each unsafe character.
func unsafeNames() (names []string) {
	for r := rune(0); r <= 0xffff; r++ {
		if printable.Unsafe(r) {
			names = append(names, "a"+string(r)+"b")
		}
	}
	return names
}

func quoted(t *testing.T, name string) string {
	text, err := json.Marshal(name)
	require.NoError(t, err)
	return string(text)
}

// No user can create objects with unsafe names. Existing objects with unsafe names can be renamed
// and deleted.
func TestUnsafeNamesAreRejected(t *testing.T) {
	b := newBench(t, "v26.05")
	direct := spdkrpc.NewSocket(b.target.Socket())
	defer func() { _ = direct.Close() }()
	for _, c := range [][2]string{
		{"bdev_malloc_create", `{"name":"m0","num_blocks":65536,"block_size":4096}`},
		{"bdev_lvol_create_lvstore", `{"bdev_name":"m0","lvs_name":"lvs0"}`},
		{"bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"v0","size_in_mib":8,"thin_provision":true}`},
		{"bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"old\u202e","size_in_mib":8,"thin_provision":true}`},
	} {
		require.NoError(t, direct.Call(t.Context(), c[0], json.RawMessage(c[1]), nil))
	}
	for _, name := range unsafeNames() {
		g := b.as(t, "admin", "bdev_lvol_create", `{"lvs_name":"lvs0","size_in_mib":8,"thin_provision":true,"lvol_name":`+quoted(t, name)+`}`, http.StatusBadRequest)
		assert.Equal(t, jsonrpc.CodeInvalidParams, g.code(t))
	}
	for method, params := range map[string]string{
		"bdev_malloc_create":       `{"name":NAME,"num_blocks":16,"block_size":4096}`,
		"bdev_lvol_create_lvstore": `{"bdev_name":"m1","lvs_name":NAME}`,
		"bdev_lvol_snapshot":       `{"lvol_name":"lvs0/v0","snapshot_name":NAME}`,
		"bdev_lvol_rename":         `{"old_name":"lvs0/v0","new_name":NAME}`,
		"nvmf_create_subsystem":    `{"nqn":NAME}`,
		"spdkgate_lvol_snapshot":   `{"snapshots":[{"lvol_name":"lvs0/v0","snapshot_name":NAME}]}`,
	} {
		g := b.as(t, "admin", method, strings.ReplaceAll(params, "NAME", quoted(t, "nqn.2016-06.io.spdk:a\u202eb")), http.StatusBadRequest)
		assert.Equal(t, jsonrpc.CodeInvalidParams, g.code(t), method)
		assert.Contains(t, g.body, `the name \"nqn.2016-06.io.spdk:a\\u202eb\" of a new object has invisible characters`, method)
	}
	b.as(t, "admin", "bdev_lvol_rename", `{"old_name":"lvs0/old\u202e","new_name":"new"}`, http.StatusOK)
}

// Text from clients and the target cannot control a terminal that displays the log. The JSON values
// are unchanged.
func TestLogsEscapeUnsafeCharacters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "calls.log")
	for to, change := range map[string]func(c *config.Config){
		"json": func(*config.Config) {},
		"text": func(c *config.Config) { c.Log.Format = "text" },
		"file": func(c *config.Config) { c.Log.Calls.To, c.Log.Calls.Path = config.CallsToFile, file },
	} {
		t.Run(to, func(t *testing.T) {
			b := newBench(t, "v26.05", change)
			all := strings.Join(unsafeNames(), "")
			b.target.Inject(spdktest.Fault{Method: "bdev_get_bdevs", Do: spdktest.Fail, Times: -1, Error: &jsonrpc.Error{Code: -1, Message: all}})
			b.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":{"name":%s}}`, quoted(t, all)))
			b.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%s}`, quoted(t, all)))
			b.do("POST", "/", all, "x", strings.NewReader(version))
			b.do("POST", "/", "admin", adminPassword, strings.NewReader(version), "User-Agent", "a\u202e\u009b", "X-Request-Id", "a\u202e\u009b")
			b.proxy.closeAuditLog()
			text := b.log.String()
			if to == "file" {
				calls, err := os.ReadFile(file)
				require.NoError(t, err)
				text += string(calls)
			}
			require.Contains(t, text, "bdev_get_bdevs")
			assert.Contains(t, text, `\u202e`)
			for line := range strings.Lines(text) {
				line = strings.TrimSuffix(line, "\n")
				assert.True(t, printable.Valid(line), "%q", line)
				if to != "text" {
					require.NoError(t, json.Unmarshal([]byte(line), new(map[string]any)), line)
				}
			}
		})
	}
}
