package keys

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// secretOf returns a secret for a key that consists of the same byte n times.
func secretOf(form, hash string, fill byte, n int) string {
	key := []byte(strings.Repeat(string(fill), n))
	return form + ":" + hash + ":" + base64.StdEncoding.EncodeToString(binary.LittleEndian.AppendUint32(key, crc32.ChecksumIEEE(key))) + ":"
}

var (
	oneSecret   = secretOf("DHHC-1", "01", 'a', 32)
	otherSecret = secretOf("DHHC-1", "01", 'b', 32)
)

func TestInvalidSecretsAreRejected(t *testing.T) {
	for _, good := range []string{
		"DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", // the example in the NVMe base specification
		"NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
		secretOf("DHHC-1", "00", 'a', 48), secretOf("DHHC-1", "00", 'a', 64), secretOf("DHHC-1", "02", 'a', 48), secretOf("DHHC-1", "03", 'a', 64),
		secretOf("NVMeTLSkey-1", "00", 'a', 32), secretOf("NVMeTLSkey-1", "00", 'a', 48), secretOf("NVMeTLSkey-1", "02", 'a', 48),
	} {
		assert.NoError(t, CheckSecret(good), good)
	}
	for bad, want := range map[string]error{
		"": errForm, "secret": errForm, oneSecret[:len(oneSecret)-1]: errForm, oneSecret + "\n": errForm, " " + oneSecret: errForm, oneSecret + oneSecret: errForm,
		strings.ToLower(oneSecret): errForm, "NVMeTLSkey-0:01:x:": errForm,
		secretOf("DHHC-1", "04", 'a', 32): errHash, secretOf("DHHC-1", "1", 'a', 32): errHash, secretOf("NVMeTLSkey-1", "03", 'a', 64): errHash,
		secretOf("DHHC-1", "02", 'a', 32): errLength, secretOf("DHHC-1", "00", 'a', 33): errLength, secretOf("NVMeTLSkey-1", "00", 'a', 64): errLength,
		"DHHC-1:00::": errLength, "DHHC-1:00:AAAA:": errLength,
		"DHHC-1:00:%%%%:": errBase64, strings.Replace(oneSecret, "YWFh", "YW\nFh", 1): errBase64, strings.Replace(oneSecret, "YWFh", "YWFi", 1): errChecksum,
		strings.Replace(secretOf("DHHC-1", "02", 'a', 48), "==:", ":", 1): errBase64,
	} {
		err := CheckSecret(bad)
		require.ErrorIs(t, err, want, bad)
		if len(bad) > 20 {
			assert.NotContains(t, err.Error(), "YW")
		}
	}
}

func FuzzCheckSecret(f *testing.F) {
	f.Add(oneSecret)
	f.Add("NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:")
	f.Fuzz(func(t *testing.T, secret string) {
		if CheckSecret(secret) != nil {
			return
		}
		// As SPDK requires, an accepted secret is a single line of printable characters.
		assert.LessOrEqual(t, len(secret), 128)
		for _, c := range secret {
			assert.True(t, c > ' ' && c < 0x7f)
		}
		assert.Equal(t, 3, strings.Count(secret, ":"))
	})
}

// A ring is the keyring of a simulated target.
type ring struct {
	*spdktest.Target
	t   *testing.T
	ask Ask
}

func newRing(t *testing.T) ring {
	target, err := spdktest.Start(spdktest.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = target.Close() })
	socket := spdkrpc.NewSocket(target.Socket())
	t.Cleanup(func() { _ = socket.Close() })
	return ring{target, t, func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
		var result json.RawMessage
		var argument any
		if params != nil {
			argument = params
		}
		err := socket.Call(ctx, method, argument, &result)
		return result, err
	}}
}

func (r ring) keys() []string {
	list, err := keyring(r.t.Context(), r.ask)
	require.NoError(r.t, err)
	names := []string{}
	for _, k := range list {
		if !k.Removed {
			names = append(names, k.Name)
		}
	}
	return names
}

func newFolder(t *testing.T) *Folder {
	f, err := OpenFolder(filepath.Join(t.TempDir(), "keys"))
	require.NoError(t, err)
	return f
}

func (f *Folder) names(t *testing.T) []string {
	entries, err := os.ReadDir(f.dir)
	require.NoError(t, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func errnoOf(err error) syscall.Errno {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Errno
	}
	return 0
}

func TestKeysCanBeAddedAndRemoved(t *testing.T) {
	r, f := newRing(t), newFolder(t)
	k := New(f)
	ctx := t.Context()
	require.NoError(t, k.Add(ctx, r.ask, Share{}, "host-a", oneSecret))
	path := filepath.Join(f.dir, "host-a.key")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, oneSecret, string(text))
	assert.Equal(t, []string{"host-a"}, r.keys())

	require.NoError(t, k.Add(ctx, r.ask, Share{}, "host-a", oneSecret), "a repetition")
	err = k.Add(ctx, r.ask, Share{}, "host-a", otherSecret)
	assert.Equal(t, syscall.EEXIST, errnoOf(err))
	text, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, oneSecret, string(text), "the file is unchanged")
	assert.Equal(t, syscall.EINVAL, errnoOf(k.Add(ctx, r.ask, Share{}, "host-b", "hunter2")))

	require.NoError(t, k.Remove(ctx, r.ask, "host-a"))
	assert.Empty(t, r.keys())
	assert.Empty(t, f.names(t))
	assert.Equal(t, syscall.ENOKEY, errnoOf(k.Remove(ctx, r.ask, "host-a")))
}

func TestKeysRegisteredByOtherProgramsAreNotChanged(t *testing.T) {
	r, f := newRing(t), newFolder(t)
	k := New(f)
	path := filepath.Join(t.TempDir(), "theirs")
	require.NoError(t, os.WriteFile(path, []byte(oneSecret), 0o600))
	_, err := r.ask(t.Context(), "keyring_file_add_key", map[string]any{"name": "theirs", "path": path})
	require.NoError(t, err)
	assert.Equal(t, syscall.EEXIST, errnoOf(k.Add(t.Context(), r.ask, Share{}, "theirs", oneSecret)))
	assert.Equal(t, syscall.EINVAL, errnoOf(k.Remove(t.Context(), r.ask, "theirs")))
	assert.FileExists(t, path)
	assert.Empty(t, f.names(t))
}

func TestKeyInUseIsNotRemoved(t *testing.T) {
	r, f := newRing(t), newFolder(t)
	k := New(f)
	ctx := t.Context()
	require.NoError(t, k.Add(ctx, r.ask, Share{}, "k", oneSecret))
	_, err := r.ask(ctx, "nvmf_create_subsystem", map[string]any{"nqn": "nqn.2016-06.io.spdk:a"})
	require.NoError(t, err)
	host := map[string]any{"nqn": "nqn.2016-06.io.spdk:a", "host": "nqn.2016-06.io.spdk:h", "dhchap_key": "k"}
	_, err = r.ask(ctx, "nvmf_subsystem_add_host", host)
	require.NoError(t, err)
	assert.Equal(t, syscall.EBUSY, errnoOf(k.Remove(ctx, r.ask, "k")))
	assert.Equal(t, []string{"k"}, r.keys())
	delete(host, "dhchap_key")
	_, err = r.ask(ctx, "nvmf_subsystem_remove_host", host)
	require.NoError(t, err)
	require.NoError(t, k.Remove(ctx, r.ask, "k"))
}

// If a call to the target or a step on disk fails, whether before or after it takes effect, a retry
// succeeds. A registered key always has a file.
func TestFailureAtAnyStepCanBeRetried(t *testing.T) {
	gone := errors.New("gone")
	sound := func(r ring, f *Folder, where string) {
		for _, name := range r.keys() {
			assert.Contains(r.t, f.names(r.t), name+suffix, where)
		}
	}
	for _, verb := range []string{"add", "remove"} {
		for _, after := range []bool{false, true} {
			for at := 1; ; at++ {
				r, f := newRing(t), newFolder(t)
				k := New(f)
				if verb == "remove" {
					require.NoError(t, k.Add(t.Context(), r.ask, Share{}, "k", oneSecret))
				}
				steps := 0
				step := func() bool { steps++; return steps == at }
				f.fail = func(string) error {
					if step() {
						return gone
					}
					return nil
				}
				failing := func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
					now := step()
					if now && !after {
						return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.Unreachable, Err: gone}
					}
					result, err := r.ask(ctx, method, params)
					if now {
						return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.OutcomeUnknown, Err: gone}
					}
					return result, err
				}
				do := func(ask Ask) error {
					if verb == "add" {
						return k.Add(t.Context(), ask, Share{}, "k", oneSecret)
					}
					return k.Remove(t.Context(), ask, "k")
				}
				err := do(failing)
				where := verb + " step " + string(rune('0'+at))
				sound(r, f, where)
				if steps < at {
					require.NoError(t, err)
					assert.Greater(t, steps, 3)
					break
				}
				require.Error(t, err, where)
				f.fail = func(string) error { return nil }
				err = do(r.ask)
				if verb == "add" {
					require.NoError(t, err, where)
					assert.Equal(t, []string{"k"}, r.keys(), where)
					assert.Equal(t, []string{"k.key"}, f.names(t), where)
					continue
				}
				if errnoOf(err) != syscall.ENOKEY { // ENOKEY means that the failed attempt had already removed the key
					require.NoError(t, err, where)
				}
				assert.Empty(t, r.keys(), where)
				assert.Empty(t, f.names(t), where)
			}
		}
	}
}

func TestKeyRefusedBySPDKLeavesNoFile(t *testing.T) {
	r, f := newRing(t), newFolder(t)
	k := New(f)
	r.Inject(spdktest.Fault{Method: "keyring_file_add_key", Times: 1, Do: spdktest.Fail})
	require.Error(t, k.Add(t.Context(), r.ask, Share{}, "k", oneSecret))
	assert.Empty(t, f.names(t))
	refusing := func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
		if method == "keyring_file_add_key" {
			return nil, &spdkrpc.Error{Method: method, Code: -1, Message: "Operation not permitted"}
		}
		return r.ask(ctx, method, params)
	}
	err := k.Add(t.Context(), refusing, Share{}, "k", oneSecret)
	assert.Equal(t, syscall.EPERM, errnoOf(err))
	assert.Contains(t, err.Error(), "user")
	assert.Empty(t, f.names(t))
}

func TestSweepRemovesUnusedKeyFiles(t *testing.T) {
	r, f := newRing(t), newFolder(t)
	k := New(f)
	ctx := t.Context()
	old := time.Now().Add(-2 * sweepAfter)
	for _, name := range []string{"registered", "saved", "orphan", "fresh"} {
		require.NoError(t, k.Add(ctx, r.ask, Share{}, name, oneSecret))
		if name != "fresh" {
			require.NoError(t, os.Chtimes(Listing{Dir: f.dir}.Path(name), old, old))
		}
		if name != "registered" {
			_, err := r.ask(ctx, "keyring_file_remove_key", map[string]any{"name": name})
			require.NoError(t, err)
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "README"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, tempTag+"x"), nil, 0o600))
	require.NoError(t, os.Chtimes(filepath.Join(f.dir, tempTag+"x"), old, old))
	needed := func(path string) (bool, error) { return path == filepath.Join(f.dir, "saved.key"), nil }
	removed, err := k.Sweep(ctx, r.ask, needed)
	require.NoError(t, err)
	assert.Equal(t, []string{"orphan"}, removed)
	assert.ElementsMatch(t, []string{"registered.key", "saved.key", "fresh.key", "README"}, f.names(t), "other files are kept")

	_, err = k.Sweep(ctx, r.ask, func(string) (bool, error) { return false, errors.New("cannot tell") })
	require.Error(t, err)
	assert.Contains(t, f.names(t), "saved.key")
}

// If the proxy cannot determine which files are needed, it removes none of them.
func TestSweepKeepsFilesAfterAnError(t *testing.T) {
	for at := 1; ; at++ {
		r, f := newRing(t), newFolder(t)
		k := New(f)
		old := time.Now().Add(-2 * sweepAfter)
		require.NoError(t, k.Add(t.Context(), r.ask, Share{}, "orphan", oneSecret))
		require.NoError(t, os.Chtimes(Listing{Dir: f.dir}.Path("orphan"), old, old))
		_, err := r.ask(t.Context(), "keyring_file_remove_key", map[string]any{"name": "orphan"})
		require.NoError(t, err)
		steps := 0
		fails := func() error {
			if steps++; steps == at {
				return errors.New("cannot tell")
			}
			return nil
		}
		f.fail = func(string) error { return fails() }
		removed, err := k.Sweep(t.Context(), func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
			if err := fails(); err != nil {
				return nil, err
			}
			return r.ask(ctx, method, params)
		}, func(string) (bool, error) { return false, fails() })
		if steps < at {
			require.NoError(t, err)
			assert.Equal(t, []string{"orphan"}, removed)
			assert.Greater(t, at, 5)
			return
		}
		require.ErrorContains(t, err, "cannot tell", "step %d", at)
		assert.Empty(t, removed)
		require.NoError(t, os.RemoveAll(f.dir))
		_, err = k.Sweep(t.Context(), r.ask, nil)
		require.Error(t, err, "the directory does not exist")
		require.Error(t, k.Add(t.Context(), r.ask, Share{}, "x", oneSecret))
		require.Error(t, k.Remove(t.Context(), r.ask, "orphan"))
	}
}
