package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Administrators can list and fetch saved configurations by calls, without access to the host.
func TestSavedFilesCanBeFetchedByCalls(t *testing.T) {
	r := newRestartBench(t)
	r.call(t, "nvmf_create_transport", `{"trtype":"TCP"}`)
	r.save(t)
	at := time.Date(2026, 11, 25, 10, 0, 0, 120e6, time.UTC)
	const damaged = "damaged-20261124T100000.120Z.json"
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, damaged), []byte("{"), 0o600))
	require.NoError(t, os.Chtimes(filepath.Join(r.dir, damaged), at, at))

	var list []spdkrpc.ProxySavedFile
	require.NoError(t, json.Unmarshal([]byte(r.call(t, "spdkgate_config_list_saved", "")), &list))
	require.Len(t, list, 3)
	assert.Equal(t, "current.json", list[0].Name)
	assert.False(t, list[0].Damaged)
	assert.Equal(t, "v26.05", list[0].Release)
	assert.NotZero(t, list[0].Calls)
	assert.Equal(t, damaged, list[2].Name)
	assert.True(t, list[2].Damaged)
	assert.Equal(t, "2026-11-25T10:00:00.120Z", list[2].SavedAt)
	for _, f := range list {
		text, err := os.ReadFile(filepath.Join(r.dir, f.Name))
		require.NoError(t, err)
		sum := sha256.Sum256(text)
		assert.Equal(t, hex.EncodeToString(sum[:]), f.Sha256)
		var got spdkrpc.ProxySavedText
		require.NoError(t, json.Unmarshal([]byte(r.call(t, "spdkgate_config_get_saved", `{"name":"`+f.Name+`"}`)), &got))
		assert.Equal(t, spdkrpc.ProxySavedText{Name: f.Name, SavedAt: f.SavedAt, Text: string(text), Sha256: f.Sha256}, got)
	}

	get := func(name string) int {
		return r.post(`{"jsonrpc":"2.0","id":1,"method":"spdkgate_config_get_saved","params":{"name":"` + name + `"}}`).code(t)
	}
	assert.Equal(t, -2, get("20260101T000000.000Z.json"), "there is no such file")
	const large = "20261123T100000.120Z.json"
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, large), nil, 0o600))
	require.NoError(t, os.Truncate(filepath.Join(r.dir, large), 16<<20+1))
	assert.Equal(t, -27, get(large), "the file is too large")
	for _, other := range []string{"../target/current.json", "/etc/passwd", "notes.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(r.dir, "notes.txt"), nil, 0o600))
		assert.NotZero(t, get(other), other)
	}
}

func TestChangesAreSavedWhenTheProxyStops(t *testing.T) {
	r := newRestartBench(t)
	s := serve(t, r.bench)
	r.call(t, "nvmf_create_transport", `{"trtype":"TCP"}`)
	s.stop()
	require.NoError(t, <-s.done)
	text, err := os.ReadFile(filepath.Join(r.dir, "current.json"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "nvmf_create_transport")
}
