package persist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/directory"
)

// failing is a disk on which one operation fails. If the failure simulates a crash, all later
// operations do nothing, and the file being written is truncated.
type failing struct {
	directory.Path
	at    int // number of the failing step, counted from 1
	crash bool
	steps int
}

var errDisk = &fs.PathError{Op: "test", Path: "disk", Err: syscall.ENOSPC}

func (d *failing) step() error {
	d.steps++
	if d.steps == d.at || d.crash && d.at > 0 && d.steps > d.at {
		return errDisk
	}
	return nil
}

func (d *failing) Write(name string, text []byte) error {
	if err := d.step(); err != nil {
		if d.steps == d.at {
			_ = os.WriteFile(filepath.Join(string(d.Path), name), text[:len(text)/2], 0o600)
		}
		return err
	}
	return d.Path.Write(name, text)
}

func (d *failing) Link(old, name string) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Path.Link(old, name)
}

func (d *failing) Rename(old, name string) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Path.Rename(old, name)
}

func (d *failing) Remove(name string) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Path.Remove(name)
}

func (d *failing) Sync() error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Path.Sync()
}

// In each scenario, every disk operation in turn either fails once or is the last operation before
// a crash. Afterward, the current file is either the complete old file or the complete new file.
// Files that were set aside remain, and the next attempt succeeds.
func TestStateIsConsistentAfterEachFailure(t *testing.T) {
	scenarios := map[string]struct {
		prepare, do func(w *world)
		may         [][]string // possible contents of the current file
		also        []string   // NQNs that must always be in at least one file
	}{
		"change": {func(*world) {}, func(w *world) {
			w.target.set("nvmf", transportCall, subsystemCall("nqn.c"))
			w.saver.Changed("nvmf_delete_subsystem", map[string]any{"nqn": "nqn.a"})
			w.saver.Changed("nvmf_delete_subsystem", map[string]any{"nqn": "nqn.b"})
		}, [][]string{{"nqn.a", "nqn.b"}, {"nqn.c"}, {"nqn.a", "nqn.b", "nqn.c"}}, []string{"nqn.a"}},
		"hold": {func(*world) {}, func(w *world) { w.target.restart("p2", empty()) }, [][]string{{"nqn.a", "nqn.b"}}, []string{"nqn.a"}},
		"hold another configuration": {func(w *world) {
			held := empty()
			held["nvmf"] = []string{subsystemCall("nqn.h")}
			w.target.restart("p2", held)
			w.save()
		}, func(w *world) { w.target.restart("p3", empty()) }, [][]string{{"nqn.a", "nqn.b", "nqn.h"}}, []string{"nqn.a", "nqn.h"}},
		"release": {func(w *world) {
			held := empty()
			held["nvmf"] = []string{subsystemCall("nqn.h")}
			w.target.restart("p2", held)
			w.save()
		}, func(w *world) { w.target.restart("p3", populated()) }, [][]string{{"nqn.a", "nqn.b", "nqn.h"}}, []string{"nqn.a", "nqn.h"}},
		"damaged": {func(w *world) {
			w.target.set("keyring", `{"method":"keyring_file_add_key","params":{"name":"k","path":"/k"}}`)
			w.save()
			require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, Current), []byte("{"), 0o600))
		}, func(w *world) { w.target.restart("p2", empty()) }, [][]string{nil, {"nqn.a", "nqn.b"}}, []string{"nqn.a"}},
	}
	for name, s := range scenarios {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, crash %t", name, crash), func(t *testing.T) {
				steps := 0
				for at := 1; ; at++ {
					w := newWorld(t)
					w.save()
					s.prepare(w)
					s.do(w)
					disk := &failing{Path: directory.Path(w.dir), at: at, crash: crash}
					w.folder.disk = disk
					err := w.saver.Save(t.Context(), false)
					steps = disk.steps
					if disk.steps < at {
						require.NoError(t, err)
						break
					}
					if err != nil {
						require.ErrorIs(t, err, errDisk, "step %d", at)
					}
					w.sound(s.may, s.also, at)

					w.folder.disk = directory.Path(w.dir)
					if crash {
						w.open()
					}
					for range 2 {
						w.save()
					}
					w.sound(s.may, s.also, at)
					assert.NotContains(t, w.files(), directory.Temp+Current, "step %d", at)
				}
				assert.GreaterOrEqual(t, steps, 4)
			})
		}
	}
}

// sound checks the conditions that must hold after every operation.
func (w *world) sound(may [][]string, also []string, at int) {
	w.t.Helper()
	c, damaged, err := w.folder.load(Current)
	require.NoError(w.t, err)
	if may[0] != nil { // the file was not damaged at the start
		require.NoError(w.t, damaged, "step %d", at)
		require.NotNil(w.t, c, "step %d", at)
	}
	if c != nil {
		assert.Contains(w.t, may, w.knows(Current), "step %d", at)
	}
	known := map[string]bool{}
	for _, name := range w.files() {
		if c, _, _ := w.folder.load(name); c != nil && name[0] != '.' {
			for _, nqn := range w.knows(name) {
				known[nqn] = true
			}
		}
	}
	for _, nqn := range also {
		assert.True(w.t, known[nqn], "step %d: %s is in none of %v", at, nqn, w.files())
	}
}

func TestFullDiskKeepsThePreviousFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	w := newWorld(t)
	require.NoError(t, unix.Mount("none", w.dir, "tmpfs", 0, "size=16k,mode=0700"))
	t.Cleanup(func() { _ = unix.Unmount(w.dir, unix.MNT_DETACH) })
	w.save()
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "fill"), make([]byte, 11<<10), 0o600))
	w.target.set("keyring", `{"method":"keyring_file_add_key","params":{"name":"k","path":"/`+strings.Repeat("k", 5000)+`"}}`)
	require.ErrorIs(t, w.saver.Save(t.Context(), false), syscall.ENOSPC)
	assert.Equal(t, []string{Current, "fill"}, w.files(), "only the old file, and no partial one")
	assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(Current))
	assert.Empty(t, w.load(Current).Subsystems[0].Calls)

	require.NoError(t, os.Remove(filepath.Join(w.dir, "fill")))
	w.save()
	assert.Len(t, w.load(Current).Subsystems[0].Calls, 1)
}

func TestDirectoryMustBePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "target")
	_, err := OpenFolder(dir, 3)
	require.NoError(t, err)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	require.NoError(t, os.Chmod(dir, 0o750))
	_, err = OpenFolder(dir, 3)
	require.ErrorContains(t, err, "chmod 700")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = OpenFolder(file, 3)
	require.ErrorContains(t, err, "is not a directory")
	_, err = OpenFolder(filepath.Join(t.TempDir(), "a", "b"), 3)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.False(t, errors.Is(err, fs.ErrExist))
}

// The service refuses a directory in which another user could replace files. Root may use the
// service's directory, because it runs `spdk-proxy saved`.
func TestDirectoryMustBelongToTheUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	parent := t.TempDir()
	require.NoError(t, os.Chmod(parent, 0o755))
	t.Chdir(parent) // the test must work without permissions on the parent directories
	const service, other = 12345, 23456
	for name, uid := range map[string]int{"service": service, "other": other, "root": 0} {
		require.NoError(t, os.Mkdir(name, 0o700))
		require.NoError(t, os.Chown(name, uid, uid))
		_, err := OpenFolder(name, 3)
		require.NoError(t, err, "root opens the directory of %s", name)
	}
	require.NoError(t, syscall.Seteuid(service))
	defer func() { require.NoError(t, syscall.Seteuid(0)) }()
	_, err := OpenFolder("service", 3)
	require.NoError(t, err)
	for _, name := range []string{"other", "root"} {
		_, err = OpenFolder(name, 3)
		require.ErrorContains(t, err, "belongs to another user", name)
	}
}

// If the directory is missing, every operation returns an error. A missing directory does not count
// as empty.
func TestMissingDirectoryIsReported(t *testing.T) {
	away := directory.Path(filepath.Join(t.TempDir(), "away"))
	_, _, read := away.Read(Current)
	_, list := away.List()
	_, lock := away.Lock()
	for step, err := range map[string]error{
		"read": read, "list": list, "lock": lock, "write": away.Write(Current, nil), "link": away.Link(Current, Held),
		"rename": away.Rename(Held, Current), "remove": away.Remove(Current), "sync": away.Sync(),
	} {
		require.ErrorIs(t, err, fs.ErrNotExist, step)
	}
}

// If a save is repeated after a crash, the directory contains only one copy of the previous
// version. A second copy would displace an older version.
func TestRepeatedSaveKeepsOnePreviousVersion(t *testing.T) {
	w := newWorld(t)
	w.save()
	first, err := w.folder.keepCopy(Current, "")
	require.NoError(t, err)
	again, err := w.folder.keepCopy(Current, "")
	require.NoError(t, err)
	assert.Equal(t, first, again)
	assert.Equal(t, []string{first, Current}, w.files())
}
