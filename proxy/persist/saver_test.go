package persist

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSavedFileHasSPDKsFormat(t *testing.T) {
	w := newWorld(t)
	twice := `{"method":"x","params":{"b":1,"a":"<&>","b":2}}` // SPDK writes duplicate members
	w.target.set("keyring", twice)
	w.save()
	path := filepath.Join(w.dir, Current)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode(), "it contains secrets")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var file struct {
		Subsystems []struct {
			Subsystem string
			Config    json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(text, &file))
	var names []string
	for _, s := range file.Subsystems {
		names = append(names, s.Subsystem)
	}
	assert.Equal(t, order, names, "in the order in which they start")
	assert.Equal(t, "null", string(file.Subsystems[2].Config), "as SPDK said")
	assert.Contains(t, strings.Join(strings.Fields(string(file.Subsystems[0].Config)), ""), `{"method":"x","params":{"b":1,"a":"<&>","b":2}}`, "as SPDK wrote it")
	assert.Contains(t, string(text), canary, "without it, the object would not be restored")
	assert.NotContains(t, w.log.String(), canary)
}

// SPDK saves limits on logical volumes before the call that waits for the volumes, and RAIDs after
// their base bdevs. spdk_tgt cannot load a file with either order.
func TestOrderOfSavedCallsIsCorrected(t *testing.T) {
	w := newWorld(t)
	call := func(method, name string) string {
		return fmt.Sprintf(`{"method":%q,"params":{"name":%q}}`, method, name)
	}
	var told, want []string
	for _, c := range []string{"bdev_set_options 1", "bdev_passthru_create 2", "bdev_raid_set_options 3", "bdev_aio_create 4", "bdev_set_qos_limit 5",
		"bdev_raid_create 6", "bdev_aio_create 7", "bdev_raid_create 8", "bdev_set_qos_limit 9", "bdev_wait_for_examine 10"} {
		method, n, _ := strings.Cut(c, " ")
		told = append(told, call(method, n))
	}
	w.target.set("bdev", told...)
	w.save()
	for _, call := range w.load(Current).Subsystems[1].Calls {
		e, err := entryOf(call)
		require.NoError(t, err)
		want = append(want, e.Params["name"].(string))
	}
	assert.Equal(t, strings.Fields("1 3 6 8 2 4 7 10 5 5 9 9"), want, "a limit follows a call that waits for its bdev")
	waits, err := entryOf(w.load(Current).Subsystems[1].Calls[8])
	require.NoError(t, err)
	assert.Equal(t, "bdev_get_bdevs", waits.Method)
}

// Volumes deleted between the last save and a crash delay the target's start by less than a minute,
// plus one second per volume. A volume with both a limit and a histogram needs only one wait.
func TestWaitsForVolumesAreLimited(t *testing.T) {
	w := newWorld(t)
	var calls []string
	for i := range 100 {
		for _, method := range []string{"bdev_set_qos_limit", "bdev_enable_histogram"} {
			calls = append(calls, fmt.Sprintf(`{"method":%q,"params":{"name":"v%d"}}`, method, i))
		}
	}
	w.target.set("bdev", calls...)
	w.save()
	waits, total := 0, 0.0
	for _, call := range w.load(Current).Subsystems[1].Calls {
		if e, err := entryOf(call); assert.NoError(t, err) && e.Method == "bdev_get_bdevs" {
			waits++
			timeout, err := e.Params["timeout"].(json.Number).Float64()
			require.NoError(t, err)
			assert.GreaterOrEqual(t, timeout, 1000.0)
			total += timeout
		}
	}
	assert.Equal(t, 100, waits)
	assert.Less(t, total, 160_000.0)
}

func TestPreviousVersionsAreKeptOnce(t *testing.T) {
	w := newWorld(t)
	w.save()
	before := w.files()
	w.target.set("nvmf", listenerCall("nqn.b"), transportCall, subsystemCall("nqn.b"), subsystemCall("nqn.a"), listenerCall("nqn.a"))
	w.save()
	assert.Equal(t, before, w.files(), "a different order is not a change: SPDK's order changes with each start")
	for i := range 8 {
		w.target.set("keyring", `{"method":"keyring_file_add_key","params":{"name":"k`+string(rune('0'+i))+`","path":"/k"}}`)
		w.saver.Changed("keyring_file_remove_key", map[string]any{"name": "k" + string(rune('0'+i-1))})
		w.save()
	}
	former, err := w.folder.previous()
	require.NoError(t, err)
	assert.Len(t, former, 3, "as many as were requested: %v", w.files())
	assert.Len(t, w.files(), 4)
	assert.Contains(t, string(w.load(Current).Subsystems[0].Calls[0]), "k7")
	assert.Contains(t, string(w.load(former[0]).Subsystems[0].Calls[0]), "k6")
}

func TestRecentVersionsAreCloserTogether(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	names := []string{}
	for i := range 1000 { // one change per minute
		names = append([]string{now.Add(time.Duration(i)*time.Minute).Format(stamp) + ".json"}, names...)
		if len(names) > 10 {
			at := now.Add(time.Duration(i) * time.Minute)
			drop := superfluous(names, at)
			require.NotZero(t, drop, "the newest is kept")
			names = append(names[:drop], names[drop+1:]...)
		}
	}
	newest, _ := time.Parse(stamp, strings.TrimSuffix(names[0], ".json"))
	second, _ := time.Parse(stamp, strings.TrimSuffix(names[1], ".json"))
	oldest, _ := time.Parse(stamp, strings.TrimSuffix(names[9], ".json"))
	assert.LessOrEqual(t, newest.Sub(second), 2*time.Minute)
	assert.Greater(t, newest.Sub(oldest), 5*time.Hour, "%v", names)
}

// The configuration of a target that starts without objects never replaces the configuration saved
// from the previous process.
func TestEmptyTargetDoesNotReplaceSavedFile(t *testing.T) {
	w := newWorld(t)
	w.save()
	w.target.restart("p2", empty())
	for range 3 { // repeated calls have no further effect
		w.target.set("nvmf", transportCall)
		w.saver.Changed("nvmf_create_transport", map[string]any{"trtype": "TCP"})
		w.save()
	}
	assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(Current))
	assert.Len(t, w.load(Held).Subsystems[3].Calls, 1, "the target's own configuration is not lost either")
	status := w.saver.Status()
	assert.Len(t, status.Missing, 5, "%v", status.Missing)
	assert.False(t, status.Failed)
	log := w.log.String()
	assert.Equal(t, 1, strings.Count(log, "level=ERROR"), log)
	assert.Contains(t, log, "nqn.a")
	assert.NotContains(t, log, canary)

	t.Run("the next proxy does not replace the file", func(t *testing.T) {
		w.open()
		w.save()
		assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(Current))
	})
	t.Run("the file is replaced once the target has everything again", func(t *testing.T) {
		full := populated()
		full["nvmf"] = append(full["nvmf"], subsystemCall("nqn.c"))
		w.target.restart("p2", full)
		w.save()
		assert.Equal(t, []string{"nqn.a", "nqn.b", "nqn.c"}, w.knows(Current))
		assert.NotContains(t, w.files(), Held)
		assert.Empty(t, w.saver.Status().Missing)
	})
}

func TestLossOfObjectsCanBeAccepted(t *testing.T) {
	w := newWorld(t)
	w.save()
	w.target.restart("p2", empty())
	w.save()
	require.NoError(t, w.saver.Save(t.Context(), true))
	assert.Empty(t, w.knows(Current))
	assert.NotContains(t, w.files(), Held)
	assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(w.aside(asideReplaced)))
	for i := range 20 { // the file that was set aside is never pruned
		w.target.set("keyring", `{"method":"keyring_file_add_key","params":{"name":"k`+string(rune('a'+i))+`","path":"/k"}}`)
		require.NoError(t, w.saver.Save(t.Context(), true))
	}
	found, _ := filepath.Glob(filepath.Join(w.dir, asideReplaced+"-*.json"))
	assert.Contains(t, found, filepath.Join(w.dir, w.first(asideReplaced)))
	assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(w.first(asideReplaced)))
}

func (w *world) first(word string) string {
	found, err := filepath.Glob(filepath.Join(w.dir, word+"-*.json"))
	require.NoError(w.t, err)
	require.NotEmpty(w.t, found)
	return filepath.Base(found[0])
}

// If three processes run one after another, and each lacks the others' objects, the saved file
// contains the objects of all three.
func TestSavedFileContainsTheObjectsOfAllProcesses(t *testing.T) {
	w := newWorld(t)
	w.save()
	other := empty()
	other["nvmf"] = []string{transportCall, subsystemCall("nqn.of-p2")}
	w.target.restart("p2", other)
	w.save()
	w.target.restart("p3", empty())
	w.save()
	assert.Equal(t, []string{"nqn.a", "nqn.b", "nqn.of-p2"}, w.knows(Current))
	assert.Empty(t, w.knows(Held))
	for i := range 5 { // an empty target that keeps restarting leaves no files behind
		w.target.restart("p4"+string(rune('0'+i)), empty())
		w.save()
	}
	assert.Equal(t, []string{"nqn.a", "nqn.b", "nqn.of-p2"}, w.knows(Current))

	all := populated()
	all["nvmf"] = append(all["nvmf"], subsystemCall("nqn.of-p2"))
	w.target.restart("p5", all)
	w.save()
	assert.Equal(t, []string{"nqn.a", "nqn.b", "nqn.of-p2"}, w.knows(Current))
	assert.NotContains(t, w.files(), Held)
	assert.Equal(t, "p5", w.load(Current).Saved.Process)
	assert.Empty(t, w.load(Current).Saved.Kept)
}

// A stopping target may still respond after removing its subsystems, so the saver does not drop
// missing objects immediately.
func TestMissingObjectsAreKeptAtFirst(t *testing.T) {
	w := newWorld(t)
	w.save()
	w.target.set("nvmf")
	w.saver.Changed("bdev_malloc_create", map[string]any{"name": "m0"})
	w.save()
	assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(Current))
	status := w.saver.Status()
	assert.True(t, status.Unsettled)
	assert.Len(t, status.Missing, 5)

	w.saver.suspect.since = time.Now().Add(-w.saver.opts.Settle) // the process kept running
	w.save()
	assert.Empty(t, w.knows(Current))
	assert.False(t, w.saver.Status().Unsettled)
	former, err := w.folder.previous()
	require.NoError(t, err)
	assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(former[0]))
	assert.Contains(t, w.log.String(), "were removed without a call")
}

func TestObjectsRemovedByCallsAreNotMissing(t *testing.T) {
	w := newWorld(t)
	w.save()
	w.target.set("nvmf", transportCall, subsystemCall("nqn.b"), listenerCall("nqn.b"))
	w.save()
	assert.True(t, w.saver.Status().Unsettled, "the loss is noticed before the call's response")
	w.saver.Changed("nvmf_delete_subsystem", map[string]any{"nqn": "nqn.a"})
	w.save()
	assert.Equal(t, []string{"nqn.b"}, w.knows(Current))
	assert.False(t, w.saver.Status().Unsettled)
	assert.False(t, w.saver.Status().Pending)
}

func TestFailedReadKeepsTheOldFile(t *testing.T) {
	gone := errors.New("gone")
	for name, fail := range map[string]func(*fakeTarget){
		"no target":                        func(f *fakeTarget) { f.down = gone },
		"startup state":                    func(f *fakeTarget) { f.fail[""] = gone },
		"one subsystem":                    func(f *fakeTarget) { f.fail["nvmf"] = gone },
		"half a response":                  func(f *fakeTarget) { f.config["nvmf"] = []string{`{"method":`} },
		"a malformed list":                 func(f *fakeTarget) { f.config["nvmf"] = []string{`]`} },
		"a call without a method":          func(f *fakeTarget) { f.config["nvmf"] = []string{`{"params":{}}`} },
		"not a call":                       func(f *fakeTarget) { f.config["nvmf"] = []string{`1`} },
		"unknown process":                  func(f *fakeTarget) { f.process = "" },
		"process replaced during the read": func(f *fakeTarget) { f.fail["keyring"] = gone; f.process = "p2" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.save()
			before, err := os.ReadFile(filepath.Join(w.dir, Current))
			require.NoError(t, err)
			w.target.mu.Lock()
			w.target.config = empty()
			fail(w.target)
			w.target.mu.Unlock()
			w.saver.Changed("bdev_malloc_delete", map[string]any{"name": "m"})
			for range 3 {
				err := w.saver.Save(t.Context(), true)
				require.Error(t, err, "even with acceptLoss")
				if name == "no target" || name == "startup state" || name == "one subsystem" {
					require.ErrorIs(t, err, gone, "the cause is named")
				}
			}
			after, err := os.ReadFile(filepath.Join(w.dir, Current))
			require.NoError(t, err)
			assert.Equal(t, before, after)
			assert.Equal(t, []string{Current}, w.files())
			assert.True(t, w.saver.Status().Pending)
			assert.True(t, w.saver.Status().Failed)
			assert.Equal(t, 1, strings.Count(w.log.String(), "cannot save the target"), "once")
		})
	}
}

func TestDamagedFileIsSetAside(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "cut": `{"subsystems":[{"subsystem":"nvmf","config":[{"method":"a"`, "another thing": `{"a":1}`, "zeros": strings.Repeat("\x00", 100)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.save()
			w.target.set("keyring", `{"method":"keyring_file_add_key","params":{"name":"k","path":"/k"}}`)
			w.save()
			require.NoError(t, os.WriteFile(filepath.Join(w.dir, Current), []byte(text), 0o600))
			w.target.restart("p2", empty()) // it cannot have loaded the file
			w.save()
			assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(Current), "the last readable version")
			damaged, err := os.ReadFile(filepath.Join(w.dir, w.aside(asideDamaged)))
			require.NoError(t, err)
			assert.Equal(t, text, string(damaged))
			assert.Empty(t, w.knows(Held))
			assert.Contains(t, w.log.String(), "the saved configuration is damaged")
		})
	}
	t.Run("without a previous version", func(t *testing.T) {
		w := newWorld(t)
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, Current), []byte("{"), 0o600))
		w.save()
		assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(Current))
		w.aside(asideDamaged)
	})
}

// Releases write the parameters of calls differently, so objects are identified by name.
func TestObjectsAreIdentifiedByNameAcrossReleases(t *testing.T) {
	w := newWorld(t)
	w.save()
	w.target.mu.Lock()
	w.target.release = "v26.01"
	w.target.mu.Unlock()
	changed := populated()
	changed["nvmf"] = []string{`{"method":"nvmf_create_transport","params":{"trtype":"TCP","max_queue_depth":128,"sock_priority":0}}`,
		subsystemCall("nqn.a"), subsystemCall("nqn.b"), listenerCall("nqn.a"), listenerCall("nqn.b")}
	w.target.restart("p2", changed)
	w.save()
	assert.Equal(t, "v26.01", w.load(Current).Saved.Release)
	assert.Equal(t, "v26.05", w.load(w.aside(asideBefore)).Saved.Release, "the old release's file is kept for a downgrade")

	w.target.mu.Lock()
	w.target.release = "v26.05"
	w.target.mu.Unlock()
	w.target.restart("p3", empty())
	w.save()
	assert.Equal(t, []string{"nqn.a", "nqn.b"}, w.knows(Current))
}

// A stopped target counts as a failure only if there are unsaved changes.
func TestStoppedTargetIsNotAFailure(t *testing.T) {
	for name, end := range map[string]func(f *fakeTarget){
		"away":                             func(f *fakeTarget) { f.down = errors.New("gone") },
		"the target ends while it reports": func(f *fakeTarget) { f.fail["nvmf"] = errors.New("gone") },
	} {
		w := newWorld(t)
		w.save()
		w.open(func(o *Options) {
			process := o.Process
			o.Process = func() (string, error) {
				if w.target.fail["nvmf"] != nil {
					return "", os.ErrNotExist
				}
				return process()
			}
		})
		w.save()
		end(w.target)
		require.Error(t, w.saver.Save(t.Context(), false), name)
		assert.False(t, w.saver.Status().Failed, name)
		assert.NotContains(t, w.log.String(), "cannot save the target", name)
		w.saver.Changed("bdev_malloc_delete", map[string]any{"name": "m"})
		require.Error(t, w.saver.Save(t.Context(), false), name)
		assert.True(t, w.saver.Status().Failed, name)
	}
	w := newWorld(t) // the target is running, but its configuration cannot be saved
	w.target.fail["nvmf"] = errors.New("not allowed")
	require.Error(t, w.saver.Save(t.Context(), false))
	assert.True(t, w.saver.Status().Failed)
}
