package persist

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/logtest"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const long = time.Minute // for timeouts that must not expire

// A fakeTarget imitates a target and returns its configuration.
type fakeTarget struct {
	mu      sync.Mutex
	process string
	release string
	config  map[string][]string // keyed by subsystem
	raids   string              // response of bdev_raid_get_bdevs; "" without RAID support
	fail    map[string]error    // keyed by subsystem or method; "" is the list of subsystems
	down    error
	reads   int
}

var order = []string{"keyring", "bdev", "scsi", "nvmf"}

func (f *fakeTarget) target(context.Context) (Target, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return Target{}, f.down
	}
	process := f.process
	return Target{Release: rpcschema.MustRelease(f.release), Process: process, Ask: func(_ context.Context, method string, params map[string]any) (json.RawMessage, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.process != process {
			return nil, errors.New("this process is gone")
		}
		if method == "framework_get_subsystems" {
			f.reads++
			if err := f.fail[""]; err != nil {
				return nil, err
			}
			var b bytes.Buffer
			for i, name := range order {
				fmt.Fprintf(&b, `%s{"subsystem":%q,"depends_on":[]}`, map[bool]string{true: "[", false: ","}[i == 0], name)
			}
			return append(b.Bytes(), ']'), nil
		}
		if method == "bdev_raid_get_bdevs" {
			if err := f.fail[method]; err != nil {
				return nil, err
			}
			if f.raids == "" {
				return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.MethodNotFound}
			}
			return json.RawMessage(f.raids), nil
		}
		if method == "spdk_get_version" {
			return json.RawMessage(`{}`), f.fail[method]
		}
		name := params["name"].(string)
		if err := f.fail[name]; err != nil {
			return nil, err
		}
		if name == "scsi" {
			return json.RawMessage("null"), nil
		}
		var b bytes.Buffer
		b.WriteByte('[')
		for i, call := range f.config[name] {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(call)
		}
		return append(b.Bytes(), ']'), nil
	}}, nil
}

func (f *fakeTarget) set(subsystem string, calls ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config[subsystem] = calls
}

// restart starts a new process with this configuration.
func (f *fakeTarget) restart(process string, config map[string][]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.process, f.config = process, config
}

const canary = "00112233445566778899aabbccddeeff"

func subsystemCall(nqn string) string {
	return fmt.Sprintf(`{"method":"nvmf_create_subsystem","params":{"nqn":%q,"allow_any_host":false,"serial_number":"S"}}`, nqn)
}

func listenerCall(nqn string) string {
	return fmt.Sprintf(`{"method":"nvmf_subsystem_add_listener","params":{"nqn":%q,"listen_address":{"trtype":"TCP","adrfam":"IPv4","traddr":"192.0.2.1","trsvcid":"4420"},"secure_channel":false}}`, nqn)
}

const (
	transportCall = `{"method":"nvmf_create_transport","params":{"trtype":"TCP","max_queue_depth":128}}`
	optionsCall   = `{"method":"bdev_set_options","params":{"bdev_io_pool_size":65535}}`
	keyCall       = `{"method":"accel_crypto_key_create","params":{"name":"ck0","cipher":"AES_XTS","key":"` + canary + `"}}`
	examineCall   = `{"method":"bdev_wait_for_examine"}`
)

// populated returns a configuration with two subsystems.
func populated() map[string][]string {
	return map[string][]string{
		"keyring": {},
		"bdev":    {optionsCall, keyCall, examineCall},
		"nvmf":    {transportCall, subsystemCall("nqn.a"), subsystemCall("nqn.b"), listenerCall("nqn.a"), listenerCall("nqn.b")},
	}
}

// empty returns the configuration of a target that was started without objects.
func empty() map[string][]string {
	return map[string][]string{"keyring": {}, "bdev": {optionsCall, examineCall}, "nvmf": {}}
}

type world struct {
	t      *testing.T
	target *fakeTarget
	dir    string
	folder *Folder
	saver  *Saver
	log    *logtest.Log
}

func newWorld(t *testing.T, change ...func(*Options)) *world {
	w := &world{t: t, target: &fakeTarget{process: "p1", release: "v26.05", config: populated(), fail: map[string]error{}}, dir: t.TempDir(), log: new(logtest.Log)}
	require.NoError(t, os.Chmod(w.dir, 0o700))
	w.open(change...)
	return w
}

// open starts a proxy's saver, as after a restart of the proxy.
func (w *world) open(change ...func(*Options)) {
	var err error
	w.folder, err = OpenFolder(w.dir, 3)
	require.NoError(w.t, err)
	o := Options{
		Folder: w.folder, Schema: rpcschema.Default(), Target: w.target.target, Log: slog.New(slog.NewTextHandler(w.log, nil)),
		Process: func() (string, error) { w.target.mu.Lock(); defer w.target.mu.Unlock(); return w.target.process, nil },
	}
	for _, f := range change {
		f(&o)
	}
	w.saver = New(o)
}

func (w *world) save() {
	w.t.Helper()
	require.NoError(w.t, w.saver.Save(w.t.Context(), false))
}

func (w *world) load(name string) *Configuration {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	require.NoError(w.t, err)
	c, err := parse(text)
	require.NoError(w.t, err)
	return c
}

// knows lists the NVMe-oF subsystems that loading a saved file would create.
func (w *world) knows(name string) (nqns []string) {
	w.t.Helper()
	for _, s := range w.load(name).Subsystems {
		for _, call := range s.Calls {
			e, err := entryOf(call)
			require.NoError(w.t, err)
			if e.Method == "nvmf_create_subsystem" {
				nqns = append(nqns, e.Params["nqn"].(string))
			}
		}
	}
	return nqns
}

// files lists the files in the directory.
func (w *world) files() (names []string) {
	entries, err := os.ReadDir(w.dir)
	require.NoError(w.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// aside returns the name of the only file that was set aside for this reason.
func (w *world) aside(word string) string {
	w.t.Helper()
	found, err := filepath.Glob(filepath.Join(w.dir, word+"-*.json"))
	require.NoError(w.t, err)
	require.Len(w.t, found, 1, "%s in %v", word, w.files())
	return filepath.Base(found[0])
}
