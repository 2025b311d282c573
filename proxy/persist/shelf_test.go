package persist

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/rpcschema"
)

func TestPrepareChecksTheCurrentFile(t *testing.T) {
	w := newWorld(t)
	calls, err := w.folder.Prepare()
	require.NoError(t, err)
	assert.Zero(t, calls)
	text, err := os.ReadFile(filepath.Join(w.dir, Current))
	require.NoError(t, err)
	assert.Contains(t, string(text), `"subsystems": []`)
	w.save()
	assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(Current), "any configuration of the target replaces an empty file")
	for _, name := range w.files() {
		assert.False(t, strings.HasPrefix(name, asideBefore), "no file is set aside: %s", name)
	}
	calls, err = w.folder.Prepare()
	require.NoError(t, err)
	assert.Equal(t, 8, calls)

	require.NoError(t, os.WriteFile(filepath.Join(w.dir, Current), []byte("{"), 0o600))
	_, err = w.folder.Prepare()
	require.ErrorContains(t, err, "saved use NAME")
	require.NoError(t, os.Remove(filepath.Join(w.dir, Current)))
	_, err = w.folder.Prepare()
	require.ErrorContains(t, err, "saved use NAME", "this is not the first start")
	assert.NotContains(t, w.files(), Current)
}

func TestSavedFilesCanBeListedComparedAndChosen(t *testing.T) {
	w := newWorld(t)
	w.save()
	w.target.restart("p2", empty())
	w.save()
	list, err := w.folder.List()
	require.NoError(t, err)
	require.NotEmpty(t, list)
	assert.Equal(t, []string{Current, Held}, []string{list[0].Name, list[1].Name})
	assert.Equal(t, 8, list[0].Calls)
	assert.Equal(t, "v26.05", list[0].Release)

	gone, added, err := w.folder.Diff(rpcschema.Default(), Current, Held)
	require.NoError(t, err)
	assert.Len(t, gone, 6)
	assert.Empty(t, added)
	assert.Contains(t, firstCalls(gone, 100), "nvmf_create_subsystem (new-nqn nqn.a)")
	for _, text := range firstCalls(gone, 100) {
		assert.NotContains(t, text, canary)
	}
	for _, bad := range []string{"none.json", "../" + Current, "/etc/passwd", ""} {
		require.Error(t, w.folder.Use(bad), bad)
	}
	held, _, err := w.folder.load(Held)
	require.NoError(t, err)
	assert.True(t, list[0].Chosen.IsZero())
	assert.True(t, w.saver.Status().Chosen.IsZero())
	require.NoError(t, w.folder.Use(Held))
	list, err = w.folder.List()
	require.NoError(t, err)
	assert.False(t, list[0].Chosen.IsZero(), "the file is marked as chosen at once")
	assert.True(t, list[0].Time.Equal(held.Saved.Time), "the time when it was saved")
	for _, other := range list[1:] {
		assert.True(t, other.Chosen.IsZero(), other.Name)
	}
	status := w.saver.Status()
	assert.Equal(t, list[0].Chosen, status.Chosen, "the status contains the choice before the next change")
	assert.True(t, status.SavedAt.Equal(held.Saved.Time))
	assert.Empty(t, w.knows(Current))
	assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(w.aside(asideReplaced)))
	require.NoError(t, w.folder.Use(w.aside(asideReplaced)))
	assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(Current))
}

func TestUnreadableFileIsNotOmittedFromTheList(t *testing.T) {
	w := newWorld(t)
	w.save()
	require.NoError(t, os.Chmod(filepath.Join(w.dir, Current), 0))
	// Without these capabilities, even root cannot read the file. The locked thread ends with this
	// test.
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	require.NoError(t, unix.Capget(&header, &caps[0]))
	caps[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	require.NoError(t, unix.Capset(&header, &caps[0]))
	_, err := w.folder.List()
	require.ErrorIs(t, err, fs.ErrPermission)
}

// Files created by root stay accessible to the service.
func TestFilesBelongToTheDirectorysOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	w := newWorld(t)
	require.NoError(t, os.Chown(w.dir, 12345, 23456))
	w.save()
	info, err := os.Stat(filepath.Join(w.dir, Current))
	require.NoError(t, err)
	st := info.Sys().(*syscall.Stat_t)
	assert.Equal(t, []uint32{12345, 23456}, []uint32{st.Uid, st.Gid})
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestMentionsSearchesAllSavedFiles(t *testing.T) {
	w := newWorld(t)
	w.target.set("keyring", `{"method":"keyring_file_add_key","params":{"name":"k","path":"/keys/k.key"}}`)
	w.save()
	w.target.set("keyring")
	w.saver.Changed("keyring_file_remove_key", map[string]any{"name": "k"})
	w.save()
	for path, want := range map[string]bool{"/keys/k.key": true, "/keys/other.key": false} {
		is, err := w.folder.Mentions(path)
		require.NoError(t, err)
		assert.Equal(t, want, is, "in a previous version")
	}
}
