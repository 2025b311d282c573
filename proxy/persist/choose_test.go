package persist

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/directory"
)

// processAt returns the name that ProcessAt gives to a process that was started at this time.
func processAt(at time.Time) string {
	return fmt.Sprintf("1a-2b-%d.%09d", at.Unix(), at.Nanosecond())
}

// newChoiceWorld creates a world with a target process that started an hour ago. The current file
// contains its subsystems nqn.a and nqn.b; an older file contains only nqn.old.
func newChoiceWorld(t *testing.T) *world {
	w := newWorld(t)
	former := populated()
	former["nvmf"] = []string{transportCall, subsystemCall("nqn.old")}
	w.target.restart(processAt(time.Now().Add(-2*time.Hour)), former)
	w.save()
	w.target.restart(processAt(time.Now().Add(-time.Hour)), populated())
	require.NoError(t, w.saver.Save(t.Context(), true))
	return w
}

// A file chosen by an administrator is not overwritten until the target has restarted, even if
// calls are made and the proxy restarts in the meantime.
func TestChosenFileIsKeptUntilLoaded(t *testing.T) {
	w := newChoiceWorld(t)
	require.NoError(t, w.folder.Use(w.aside(asideReplaced)))
	chosen, err := os.ReadFile(filepath.Join(w.dir, Current))
	require.NoError(t, err)
	unchanged := func() {
		t.Helper()
		now, err := os.ReadFile(filepath.Join(w.dir, Current))
		require.NoError(t, err)
		require.Equal(t, string(chosen), string(now))
	}
	w.save()
	unchanged()
	w.target.set("nvmf", transportCall, subsystemCall("nqn.old"), subsystemCall("nqn.new"))
	w.saver.Changed("nvmf_create_subsystem", map[string]any{"nqn": "nqn.new"})
	w.save()
	unchanged()
	assert.Equal(t, []string{"nqn.old", "nqn.new"}, w.knows(Held), "changes in the meantime are not lost")
	status := w.saver.Status()
	assert.False(t, status.Chosen.IsZero())
	assert.Empty(t, status.Missing, "the target lacks it intentionally")
	assert.False(t, status.Pending)
	assert.Equal(t, 1, strings.Count(w.log.String(), "chosen configuration has not been loaded"))
	assert.NotContains(t, w.log.String(), "level=ERROR")

	w.open() // as after a restart of the proxy
	w.save()
	unchanged()

	loaded := populated()
	loaded["nvmf"] = []string{transportCall, subsystemCall("nqn.old")}
	w.target.restart(processAt(time.Now().Add(time.Second)), loaded)
	w.save()
	assert.True(t, w.saver.Status().Chosen.IsZero())
	assert.Nil(t, w.load(Current).Saved.Chosen)
	loaded["nvmf"] = append(loaded["nvmf"], subsystemCall("nqn.later"))
	w.saver.Changed("nvmf_create_subsystem", map[string]any{"nqn": "nqn.later"})
	w.save()
	assert.Equal(t, []string{"nqn.old", "nqn.later"}, w.knows(Current), "changes are saved again from now on")
	assert.Equal(t, []string{"nqn.old", "nqn.new"}, w.knows(w.aside(asideHeld)))
}

// If a target could not create all objects in the chosen file, its configuration does not replace
// the file.
func TestChosenFileIsKeptIfADiskIsMissing(t *testing.T) {
	w := newChoiceWorld(t)
	require.NoError(t, w.folder.Use(w.aside(asideReplaced)))
	w.target.restart(processAt(time.Now().Add(time.Second)), empty())
	w.save()
	assert.Equal(t, []string{"nqn.old"}, w.knows(Current))
	assert.True(t, w.saver.Status().Chosen.IsZero())
	assert.NotEmpty(t, w.saver.Status().Missing)
}

// A target that was starting when the file was chosen may already have read the previous file,
// although its socket is newer than the choice.
func TestChosenFileIsKeptIfTargetReadThePreviousFile(t *testing.T) {
	w := newChoiceWorld(t)
	require.NoError(t, w.folder.Use(w.aside(asideReplaced)))
	w.target.restart(processAt(time.Now().Add(time.Second)), populated())
	w.save()
	assert.Equal(t, []string{"nqn.old"}, w.knows(Current))
	assert.False(t, w.saver.Status().Chosen.IsZero())
}

// The choice records which process had the replaced configuration. This process is not mistaken for
// a restarted one, even if its start time appears to be later than the choice.
func TestChosenFileIsKeptWhenTheClockIsSetBack(t *testing.T) {
	w := newChoiceWorld(t)
	w.target.restart(processAt(time.Now().Add(time.Hour)), populated())
	w.save()
	former := w.aside(asideReplaced)
	for range 2 { // the result is the same if the file is chosen twice
		require.NoError(t, w.folder.Use(former))
	}
	w.target.set("nvmf", transportCall, subsystemCall("nqn.new"))
	w.save()
	assert.Equal(t, []string{"nqn.old"}, w.knows(Current))
}

// If the replaced file cannot be read, it is unknown which file the target has loaded, so the
// chosen file is kept.
func TestChosenFileIsKeptIfTheReplacedFileIsUnreadable(t *testing.T) {
	w := newChoiceWorld(t)
	require.NoError(t, w.folder.Use(w.aside(asideReplaced)))
	replaced := filepath.Join(w.dir, w.load(Current).Saved.Chosen.Replaced)
	require.NoError(t, os.Remove(replaced))
	require.NoError(t, os.Mkdir(replaced, 0o700))
	w.target.restart(processAt(time.Now().Add(time.Second)), populated())
	require.ErrorContains(t, w.saver.Save(t.Context(), false), filepath.Base(replaced))
	assert.Equal(t, []string{"nqn.old"}, w.knows(Current))
	assert.NotNil(t, w.load(Current).Saved.Chosen)
}

func TestChosenFileMayBeEmpty(t *testing.T) {
	w := newChoiceWorld(t)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "nothing.json"), []byte(`{"subsystems":[]}`), 0o600))
	require.NoError(t, w.folder.Use("nothing.json"))
	w.save()
	assert.Zero(t, w.load(Current).calls())
	w.target.restart(processAt(time.Now().Add(time.Second)), empty())
	w.save()
	assert.Nil(t, w.load(Current).Saved.Chosen)
	assert.Equal(t, 2, w.load(Current).calls())
}

func TestReplacedChosenFileIsDropped(t *testing.T) {
	w := newChoiceWorld(t)
	require.NoError(t, w.folder.Use(w.aside(asideReplaced)))
	w.save()
	require.NoError(t, w.saver.Save(t.Context(), true))
	assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(Current))
	assert.True(t, w.saver.Status().Chosen.IsZero())
	assert.NotContains(t, w.files(), Held)

	require.NoError(t, w.folder.Use(Current)) // contains the same calls as the target
	w.save()
	assert.NotNil(t, w.load(Current).Saved.Chosen)
	require.NoError(t, w.saver.Save(t.Context(), true))
	assert.Nil(t, w.load(Current).Saved.Chosen)
}

// Whichever step of Folder.Use fails, either the old or the new file is current, and neither is
// lost.
func TestInterruptedChoiceLosesNoFile(t *testing.T) {
	for _, crash := range []bool{false, true} {
		for at := 1; ; at++ {
			w := newChoiceWorld(t)
			former := w.aside(asideReplaced)
			disk := &failing{Path: directory.Path(w.dir), at: at, crash: crash}
			w.folder.disk = disk
			err := w.folder.Use(former)
			if disk.steps < at {
				require.NoError(t, err)
				break
			}
			w.sound([][]string{{"nqn.a", "nqn.b"}, {"nqn.old"}}, []string{"nqn.a", "nqn.old"}, at)
			w.open()
			require.NoError(t, w.folder.Use(former))
			w.sound([][]string{{"nqn.old"}}, []string{"nqn.a", "nqn.old"}, at)
		}
	}
}

// If an administrator chooses a file in place of a damaged file, the damaged file is not kept among
// the replaced files.
func TestChoiceReplacesDamagedFile(t *testing.T) {
	w := newChoiceWorld(t)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, Current), []byte("{"), 0o600))
	former := w.aside(asideReplaced)
	require.NoError(t, w.folder.Use(former))
	text, err := os.ReadFile(filepath.Join(w.dir, w.aside(asideDamaged)))
	require.NoError(t, err)
	assert.Equal(t, "{", string(text))
	assert.Equal(t, former, w.aside(asideReplaced))
	assert.Equal(t, []string{"nqn.old"}, w.knows(Current))
}
