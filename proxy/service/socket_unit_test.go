package service

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckSocketUnitComparesAddresses(t *testing.T) {
	const shipped, edited = "lib/spdk-proxy.socket", "etc/spdk-proxy.socket.d/override.conf"
	for name, c := range map[string]struct {
		files  map[string]string
		listen string
		local  string
		says   string
	}{
		"no unit":                       {listen: "0.0.0.0:9009"},
		"the same address":              {files: map[string]string{shipped: "[Socket]\nListenStream=0.0.0.0:9009\n"}, listen: "0.0.0.0:9009"},
		"another port":                  {files: map[string]string{shipped: "[Socket]\nListenStream=0.0.0.0:9009\n"}, listen: "0.0.0.0:9010", says: "listen is 0.0.0.0:9010, but spdk-proxy.socket listens at 0.0.0.0:9009"},
		"another address":               {files: map[string]string{shipped: "[Socket]\nListenStream=0.0.0.0:9009\n"}, listen: "127.0.0.1:9009", says: "ListenStream=127.0.0.1:9009"},
		"only a port":                   {files: map[string]string{shipped: "[Socket]\nListenStream=9009\n"}, listen: "[::]:9009"},
		"edited":                        {files: map[string]string{shipped: "[Socket]\nListenStream=0.0.0.0:9009\n", edited: "[Socket]\nListenStream=\nListenStream=0.0.0.0:9010\n"}, listen: "0.0.0.0:9010"},
		"edited without a reset":        {files: map[string]string{shipped: "[Socket]\nListenStream=0.0.0.0:9009\n", edited: "[Socket]\nListenStream=0.0.0.0:9010\n"}, listen: "0.0.0.0:9010", says: "listens at 0.0.0.0:9009"},
		"replaced by the administrator": {files: map[string]string{shipped: "[Socket]\nListenStream=0.0.0.0:9009\n", "etc/spdk-proxy.socket": "[Socket]\nListenStream=0.0.0.0:9011\n"}, listen: "0.0.0.0:9011"},
		"overridden drop-in":            {files: map[string]string{shipped: "[Socket]\nListenStream=0.0.0.0:9009\n", edited: "", "lib/spdk-proxy.socket.d/override.conf": "[Socket]\nListenStream=\nListenStream=1.2.3.4:5\n"}, listen: "0.0.0.0:9009"},
		"a path that is not configured": {files: map[string]string{shipped: "[Socket]\nListenStream=/run/x\n"}, listen: "0.0.0.0:9009", says: `listen_unix.path is "", but spdk-proxy.socket listens at /run/x`},
		"another path":                  {files: map[string]string{shipped: "[Socket]\nListenStream=0.0.0.0:9009\n", edited: "[Socket]\nListenStream=/run/x\n"}, listen: "0.0.0.0:9009", local: "/run/y", says: "ListenStream=/run/y"},
		"the same path":                 {files: map[string]string{shipped: "[Socket]\nListenStream=0.0.0.0:9009\n", edited: "[Socket]\nListenStream=/run/x\n"}, listen: "0.0.0.0:9009", local: "/run/x"},
		"a path without a unit":         {files: map[string]string{shipped: "[Socket]\nListenStream=0.0.0.0:9009\n"}, listen: "0.0.0.0:9009", local: "/run/x"},
		"neither address nor path":      {files: map[string]string{shipped: "[Socket]\nListenStream=@x\n"}, listen: "0.0.0.0:9009", says: "listens at @x"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range c.files {
				path := filepath.Join(root, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			}
			folders := []string{filepath.Join(root, "etc"), filepath.Join(root, "lib")}
			err := checkSocketUnit(places{c.listen, c.local}, "", folders)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			require.NoError(t, os.MkdirAll(folders[0], 0o755))
			mask := filepath.Join(folders[0], Instance("").socketUnit())
			_ = os.Remove(mask)
			require.NoError(t, os.Symlink(os.DevNull, mask))
			assert.NoError(t, checkSocketUnit(places{c.listen, c.local}, "", folders), "masked")
		})
	}
}

// A unit that cannot be parsed is reported. A drop-in that no longer exists is skipped.
func TestInvalidSocketUnitsAreReported(t *testing.T) {
	dir := t.TempDir()
	unitFile, dropIns := filepath.Join(dir, "spdk-proxy.socket"), filepath.Join(dir, "spdk-proxy.socket.d")
	require.NoError(t, os.WriteFile(unitFile, []byte("[Socket]\nListenStream=127.0.0.1:1\n"), 0o600))
	require.NoError(t, os.Mkdir(dropIns, 0o700))
	require.NoError(t, os.Symlink(filepath.Join(dir, "missing"), filepath.Join(dropIns, "a.conf")))
	require.NoError(t, os.WriteFile(filepath.Join(dropIns, "b.conf"), []byte("[Socket]\nListenStream=127.0.0.1:2\n"), 0o600))
	streams, err := listenStreams("", []string{dir})
	require.NoError(t, err)
	assert.Equal(t, []string{"127.0.0.1:1", "127.0.0.1:2"}, streams)
	require.NoError(t, os.WriteFile(unitFile, []byte("[Socket"), 0o600))
	_, err = listenStreams("", []string{dir})
	require.ErrorContains(t, err, unitFile)
}
