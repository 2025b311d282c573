package luks

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

const (
	mib    = 1 << 20
	first  = "a first passphrase, 31 bytes long"
	second = "a second passphrase, also long"
	volID  = "t0:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"
	number = "259:3"
)

// A world simulates a node with one device, which is a file. The simulation replaces cryptsetup,
// the device mapper and package mount.
type world struct {
	t      *testing.T
	device string
	log    bytes.Buffer

	mu       sync.Mutex
	ran      []string            // commands with their arguments
	slots    []string            // passphrases that open the device
	marked   bool                // set by MarkFormatting
	mappings map[string]*mapping // by name
	busy     map[string]bool
	// unsupported is the kernel's error if it does not support encryption.
	unsupported error
	// before is called before each command. An error means that the command was killed before it
	// had any effect.
	before func(args []string) error
	// after is called after each command, with the same arguments.
	after func(args []string) error
	// failAt is the number of the request to the kernel, a device or cryptsetup that fails; 0 for
	// none. failed describes the failed request.
	requests, failAt int
	failed           string
}

var errInjected = errors.New("injected failure")

// request counts a request, and fails if failAt selects it.
func (w *world) request(does string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.requests++; w.requests == w.failAt {
		w.failed = does
		return errInjected
	}
	return nil
}

func newWorld(t *testing.T) (*LUKS, *world) {
	w := &world{t: t, device: filepath.Join(t.TempDir(), "device"), mappings: map[string]*mapping{}, busy: map[string]bool{}}
	require.NoError(t, os.WriteFile(w.device, nil, 0o600))
	require.NoError(t, os.Truncate(w.device, 32*mib))
	return w.luks(), w
}

// luks returns a LUKS as in a new process.
func (w *world) luks() *LUKS {
	l := New(Options{Prober: w, Run: w.run, Log: slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	l.mapper = w
	l.number = func(string) (string, error) { return number, w.request("number of the device") }
	return l
}

func (w *world) volume() Volume {
	name, err := NameOf(volID)
	require.NoError(w.t, err)
	return Volume{Name: name, Device: w.device, Keys: keysOf(first, "")}
}

func keysOf(current, previous string) *Keys {
	return &Keys{hostauth.NewSecret(current), hostauth.NewSecret(previous)}
}

func (w *world) write(at int64, data []byte) {
	f, err := os.OpenFile(w.device, os.O_WRONLY, 0)
	require.NoError(w.t, err)
	_, err = f.WriteAt(data, at)
	require.NoError(w.t, err)
	require.NoError(w.t, f.Close())
}

func (w *world) sum() [sha256.Size]byte {
	b, err := os.ReadFile(w.device)
	require.NoError(w.t, err)
	return sha256.Sum256(b)
}

func (w *world) header(version uint16, subsystem string) {
	h := append([]byte("LUKS\xba\xbe"), 0, 0)
	binary.BigEndian.PutUint16(h[6:], version)
	h = append(h, make([]byte, 248)...)
	copy(h[208:], subsystem)
	w.write(0, h)
}

// commands returns the cryptsetup commands that were run, without their arguments.
func (w *world) commands() (names []string) {
	for _, c := range w.ran {
		if fields := strings.Fields(c); fields[0] == "cryptsetup" {
			names = append(names, fields[1])
		}
	}
	return names
}

// run simulates cryptsetup.
func (w *world) run(stdin hostauth.Secret, name string, args ...string) (string, int, error) {
	if err := w.request(name + " " + args[0]); err != nil {
		return "", 0, err
	}
	w.mu.Lock()
	w.ran = append(w.ran, name+" "+strings.Join(args, " "))
	w.mu.Unlock()
	if w.before != nil {
		if err := w.before(args); err != nil {
			return "", 0, err
		}
	}
	w.mu.Lock()
	code := w.execute(stdin.Reveal(), name, args)
	w.mu.Unlock()
	if w.after != nil {
		if err := w.after(args); err != nil {
			return "", 0, err
		}
	}
	return "cryptsetup says something", code, nil
}

func (w *world) execute(passphrase, name string, args []string) int {
	if name != "cryptsetup" {
		return 1
	}
	fits := slices.Contains(w.slots, passphrase)
	switch args[0] {
	case "luksFormat":
		noise := make([]byte, 4096)
		_, _ = rand.Read(noise)
		w.write(32<<10, noise)
		w.header(2, args[slices.Index(args, "--subsystem")+1])
		w.slots = []string{passphrase}
	case "open":
		if !fits {
			return exitNoPermission
		}
		if !slices.Contains(args, "--test-passphrase") {
			w.mappings[args[len(args)-1]] = &mapping{uuid: "CRYPT-LUKS2-1-x", minor: 3, below: number, readOnly: slices.Contains(args, "--readonly")}
		}
	case "luksAddKey":
		if !fits {
			return exitNoPermission
		}
		added, err := os.ReadFile(args[len(args)-1])
		require.NoError(w.t, err)
		w.slots = append(w.slots, string(added))
	case "luksRemoveKey":
		if !fits {
			return exitNoPermission
		}
		w.slots = slices.DeleteFunc(w.slots, func(s string) bool { return s == passphrase })
	case "config":
		w.header(2, args[slices.Index(args, "--subsystem")+1])
	case "resize":
		if w.mappings[args[len(args)-1]].suspended {
			return exitBusy
		}
	default:
		w.t.Errorf("unknown command %v", args)
	}
	return 0
}

func (w *world) Contents(_ context.Context, device string, _ bool) (string, int64, bool, error) {
	b, err := os.ReadFile(device)
	if err := errors.Join(err, w.request("read the device")); err != nil {
		return "", 0, false, err
	}
	at := int64(len(b) - len(bytes.TrimLeft(b, "\x00")))
	if at == int64(len(b)) {
		at = -1
	}
	switch {
	case bytes.HasPrefix(b, []byte("LUKS\xba\xbe")):
		return "crypto_LUKS", at, w.marked, nil
	case bytes.HasPrefix(b, []byte("XFSB")):
		return "xfs", at, w.marked, nil
	}
	return "", at, w.marked, nil
}

func (w *world) MarkFormatting(_ string, set bool) error {
	if err := w.request("mark the device"); err != nil {
		return err
	}
	w.marked = set
	return nil
}

func (w *world) check() error { return errors.Join(w.unsupported, w.request("check the kernel")) }

func (w *world) find(name string) (mapping, bool, error) {
	if err := w.request("look up the mapping"); err != nil {
		return mapping{}, false, err
	}
	m, ok := w.mappings[name]
	if !ok {
		return mapping{}, false, nil
	}
	return *m, true, nil
}

func (w *world) resume(name string) error {
	if err := w.request("resume the mapping"); err != nil {
		return err
	}
	w.mappings[name].suspended = false
	return nil
}

func (w *world) remove(name string) error {
	if w.busy[name] {
		return fmt.Errorf("%w: %s", ErrBusy, name)
	}
	if err := w.request("remove the mapping"); err != nil {
		return err
	}
	if _, ok := w.mappings[name]; !ok {
		return fmt.Errorf("there is no mapping %s", name)
	}
	delete(w.mappings, name)
	return nil
}

var errKilled = errors.New("signal: killed")
