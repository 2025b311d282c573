package keys

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// keep serves a directory as spdk-proxy-keys.socket does, with one request per connection.
func keep(t *testing.T, f *Folder) (k Keeper, failures func() []error) {
	path := filepath.Join(t.TempDir(), "keys.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	var serving sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			err = Keep(c, f)
			mu.Lock()
			failed = append(failed, err)
			mu.Unlock()
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return Keeper{path}, func() []error {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(failed)
	}
}

func TestBothKeyStoresBehaveTheSame(t *testing.T) {
	for _, name := range []string{"directory", "keeper"} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			var s Store = f
			if name == "keeper" {
				s, _ = keep(t, f)
			}
			for _, step := range []struct {
				secret string
				want   Outcome
			}{{oneSecret, Placed}, {oneSecret, There}, {otherSecret, Differs}, {oneSecret, There}} {
				outcome, err := s.Place("a", step.secret)
				require.NoError(t, err)
				assert.Equal(t, step.want, outcome)
			}
			l, err := s.List()
			require.NoError(t, err)
			assert.Equal(t, f.dir, l.Dir)
			assert.True(t, l.Has("a"))
			assert.Len(t, l.Files, 1)
			assert.FileExists(t, l.Path("a"))
			require.NoError(t, s.Remove("a"))
			require.NoError(t, s.Remove("a"))
			assert.Empty(t, f.names(t))
			for _, bad := range []string{"", ".", "..", "../a", "a/b", "a\x00", ".new-x", "-a", "a b", strings.Repeat("a", 101), "ä"} {
				_, err := s.Place(bad, oneSecret)
				require.Error(t, err, bad)
				require.Error(t, s.Remove(bad), bad)
			}
			assert.Empty(t, f.names(t))
		})
	}
}

func TestKeeperErrorsContainNoSecrets(t *testing.T) {
	f := newFolder(t)
	k, failures := keep(t, f)
	for _, text := range []string{`{"do":"place","name":"a","secret":"hunter2"}`, `{"do":"hunter2"}`, `{"hunter2":1}`, `hunter2`, strings.Repeat("hunter2", 1000), `{"do":"place","name":"../hunter2","secret":"` + oneSecret + `"}`} {
		c, err := net.Dial("unix", k.Socket)
		require.NoError(t, err)
		_, _ = c.Write([]byte(text))
		require.NoError(t, c.(*net.UnixConn).CloseWrite())
		buf := make([]byte, 4096)
		n, _ := c.Read(buf)
		assert.NotContains(t, string(buf[:n]), "hunter2")
		assert.NotContains(t, string(buf[:n]), oneSecret)
		_ = c.Close()
	}
	_, err := k.List() // the keeper executes this call after all earlier calls
	require.NoError(t, err)
	for _, err := range failures() {
		if err != nil {
			assert.NotContains(t, err.Error(), "hunter2")
			assert.NotContains(t, err.Error(), oneSecret)
		}
	}
	assert.Empty(t, f.names(t))
	_, err = Keeper{filepath.Join(t.TempDir(), "none")}.Place("a", oneSecret)
	require.ErrorContains(t, err, "spdk-proxy-keys.socket")
	assert.NotContains(t, err.Error(), oneSecret)
}

func TestConcurrentPlaceStoresOneSecret(t *testing.T) {
	f := newFolder(t)
	var placing sync.WaitGroup
	outcomes := make(chan Outcome, 40)
	for i := range 40 {
		secret := []string{oneSecret, otherSecret}[i%2]
		placing.Go(func() {
			o, err := f.Place("k", secret)
			assert.NoError(t, err)
			outcomes <- o
		})
	}
	placing.Wait()
	close(outcomes)
	count := map[Outcome]int{}
	for o := range outcomes {
		count[o]++
	}
	assert.Equal(t, map[Outcome]int{Placed: 1, There: 19, Differs: 20}, count)
	assert.Equal(t, []string{"k.key"}, f.names(t))
}

// The length of a secret is limited, in order to keep other data out of the directory. SPDK's
// longest secrets are far below the limit.
func TestSecretLengthIsLimited(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	f, err := OpenFolder(dir)
	require.NoError(t, err)
	outcome, err := f.Place("a", strings.Repeat("x", 512))
	require.NoError(t, err)
	assert.Equal(t, Placed, outcome)
	_, err = f.Place("b", strings.Repeat("x", 513))
	require.ErrorContains(t, err, "too long")
	assert.NoFileExists(t, filepath.Join(dir, "b.key"))
}

func TestKeyDirectoryMustBePrivate(t *testing.T) {
	_, err := OpenFolder("keys")
	require.ErrorContains(t, err, "not an absolute path")
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	_, err = OpenFolder(dir)
	require.ErrorContains(t, err, "chmod 700")
	require.NoError(t, os.Symlink(newFolder(t).dir, filepath.Join(dir, "link")))
	_, err = OpenFolder(filepath.Join(dir, "link"))
	require.Error(t, err)
}

// If nothing listens at the keeper's socket, each call fails, and the error names the socket's
// unit.
func TestMissingKeeperFailsEachCall(t *testing.T) {
	k := Keeper{filepath.Join(t.TempDir(), "keys.sock")}
	_, placed := k.Place("a", oneSecret)
	_, listed := k.List()
	for name, err := range map[string]error{"place": placed, "list": listed, "remove": k.Remove("a")} {
		assert.ErrorContains(t, err, "spdk-proxy-keys.socket", name)
	}
}
