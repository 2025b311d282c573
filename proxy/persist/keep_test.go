package persist

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func hostCall(nqn, host string) string {
	return fmt.Sprintf(`{"method":"nvmf_subsystem_add_host","params":{"nqn":%q,"host":%q}}`, nqn, host)
}

func namespaceCall(nqn, bdev string, nsid int) string {
	return fmt.Sprintf(`{"method":"nvmf_subsystem_add_ns","params":{"nqn":%q,"namespace":{"nsid":%d,"bdev_name":%q}}}`, nqn, nsid, bdev)
}

type params = map[string]any

// calls lists the NVMe-oF calls in a saved file, each by its method and the last name in it.
func (w *world) calls(name string) (list []string) {
	w.t.Helper()
	for _, call := range compare(w.saver.opts.Schema, w.load(name), w.load(name)).describeAll(placesOf(w.load(name), "nvmf")) {
		list = append(list, call.String())
	}
	return list
}

// exported returns the configuration of a target that exports a volume to host.1.
func exported() map[string][]string {
	c := empty()
	c["nvmf"] = []string{transportCall, subsystemCall("nqn.a"), hostCall("nqn.a", "host.1"), namespaceCall("nqn.a", "v1", 1), listenerCall("nqn.a"), subsystemCall("nqn.b")}
	return c
}

func without(config map[string][]string, calls ...string) map[string][]string {
	reduced := map[string][]string{}
	for subsystem, list := range config {
		reduced[subsystem] = []string{}
		for _, call := range list {
			gone := false
			for _, c := range calls {
				gone = gone || c == call
			}
			if !gone {
				reduced[subsystem] = append(reduced[subsystem], call)
			}
		}
	}
	return reduced
}

// If a new process lacks a namespace, that namespace stays in the file while changes to other
// objects are saved.
func TestOtherObjectsAreSavedWhileOneIsMissing(t *testing.T) {
	w := newWorld(t)
	w.target.restart("p1", exported())
	w.save()
	full := w.calls(Current)
	w.target.restart("p2", without(exported(), namespaceCall("nqn.a", "v1", 1)))
	w.save()
	assert.Equal(t, full, w.calls(Current), "in the same place")
	assert.Len(t, w.saver.Status().Missing, 1)

	w.target.config["nvmf"] = append(w.target.config["nvmf"], subsystemCall("nqn.c"))
	w.saver.Changed("nvmf_create_subsystem", params{"nqn": "nqn.c"})
	require.NoError(t, w.saver.AwaitSaved(t.Context(), "p2"))
	assert.Equal(t, []string{"nqn.a", "nqn.b", "nqn.c"}, w.knows(Current))
	assert.Contains(t, w.calls(Current), full[3])
	assert.Len(t, w.saver.Status().Missing, 1)

	w.open() // the next proxy reads from the file which calls the process lacked
	w.save()
	assert.False(t, w.saver.Status().Unsettled)
	assert.Len(t, w.saver.Status().Missing, 1)
	w.target.restart("p3", without(exported()))
	w.save()
	assert.Len(t, w.saver.Status().Missing, 1, "nqn.c is missing now")
	assert.Contains(t, w.calls(Current), full[3])
	assert.NotContains(t, fmt.Sprint(w.saver.Status().Missing), "add_ns")
}

// An object that a call has removed does not count as missing, even if it came from another
// process.
func TestMissingObjectCanBeRemoved(t *testing.T) {
	for _, c := range []struct {
		method string
		params params
		left   int // number of missing calls for nqn.a
	}{
		{"nvmf_delete_subsystem", params{"nqn": "nqn.a"}, 0},
		{"nvmf_subsystem_remove_ns", params{"nqn": "nqn.a", "nsid": 1}, 2},
		{"nvmf_subsystem_remove_ns", params{"nqn": "nqn.a", "nsid": 2}, 3}, // hosts are not readmitted to objects changed by calls
		{"nvmf_subsystem_remove_host", params{"nqn": "nqn.a", "host": "host.1"}, 3},
		{"nvmf_subsystem_remove_host", params{"nqn": "nqn.b", "host": "host.1"}, 4},
		{"nvmf_delete_subsystem", params{"nqn": "nqn.other"}, 4},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			w := newWorld(t)
			w.target.restart("p1", exported())
			w.save()
			w.target.restart("p2", empty())
			w.target.set("nvmf", transportCall, subsystemCall("nqn.b"))
			w.save()
			require.Len(t, w.saver.Status().Missing, 4)
			w.saver.Changed(c.method, c.params)
			require.NoError(t, w.saver.AwaitSaved(t.Context(), "p2"))
			for range 3 {
				assert.Len(t, w.saver.Status().Missing, c.left)
				w.save()
			}
		})
	}
}

// If a call removes an object that only the saved file contains, Lacks finds the object by its
// name, or by the number that the method takes.
func TestMissingObjectsAreFoundByNameOrNumber(t *testing.T) {
	w := newWorld(t)
	c := exported()
	c["scsi"] = nil
	c["nvmf"] = append(c["nvmf"], `{"method":"iscsi_create_portal_group","params":{"tag":7,"portals":[{"host":"192.0.2.1","port":"3260"}]}}`)
	w.target.restart("p1", c)
	w.save()
	w.target.restart("p2", empty())
	w.save()
	for _, call := range []struct {
		method string
		params params
		want   bool
	}{
		{"nvmf_subsystem_remove_host", params{"nqn": "nqn.a", "host": "host.1"}, true},
		{"nvmf_subsystem_remove_host", params{"nqn": "nqn.b", "host": "host.1"}, false},
		{"nvmf_subsystem_remove_ns", params{"nqn": "nqn.a", "nsid": 1}, true},
		{"nvmf_subsystem_remove_ns", params{"nqn": "nqn.a", "nsid": 2}, false},
		{"iscsi_delete_portal_group", params{"tag": 7}, true},
		{"iscsi_delete_portal_group", params{"tag": 1}, false},
		{"iscsi_delete_initiator_group", params{"tag": 7}, false},
		{"nvmf_create_subsystem", params{"nqn": "nqn.a"}, false},
	} {
		assert.Equal(t, call.want, w.saver.Lacks(call.method, call.params), "%v", call)
	}
}

// Changes that could not be saved are remembered together with later changes, up to the limit for
// one save.
func TestRememberedChangesAreLimited(t *testing.T) {
	earlier, now := newChanges(), newChanges()
	for i := range maxTouched {
		earlier.export(fmt.Sprint("e", i))
		now.export(fmt.Sprint("n", i))
	}
	now.add(earlier)
	assert.Len(t, now.exports, maxTouched)
	few := newChanges()
	few.add(earlier)
	assert.Equal(t, earlier.exports, few.exports)

	for i := range maxTouched + 1 {
		now.name(fmt.Sprint("n", i))
	}
	assert.Len(t, now.names, maxTouched)
	for earlierRemovals, want := range map[int]int{maxTouched - 2: maxTouched, maxTouched - 1: 2} {
		few, earlier := newChanges(), newChanges()
		few.removals, earlier.removals = make([]removal, 2), make([]removal, earlierRemovals)
		few.add(earlier)
		assert.Len(t, few.removals, want)
	}
}

// If calls recreate a missing export for another host, the saved file does not admit the earlier
// host.
func TestRecreatedExportDoesNotAdmitEarlierHosts(t *testing.T) {
	w := newWorld(t)
	w.target.restart("p1", exported())
	w.save()
	w.target.restart("p2", empty())
	w.save()
	w.target.set("nvmf", transportCall, subsystemCall("nqn.a"), hostCall("nqn.a", "host.2"))
	w.saver.Changed("nvmf_create_subsystem", params{"nqn": "nqn.a"})
	w.saver.Changed("nvmf_subsystem_add_host", params{"nqn": "nqn.a", "host": "host.2"})
	require.NoError(t, w.saver.AwaitSaved(t.Context(), "p2"))
	calls := fmt.Sprint(w.calls(Current))
	assert.Contains(t, calls, "host.2")
	assert.NotContains(t, calls, "host.1")
	assert.Contains(t, calls, "add_ns", "the namespace may reappear")
}

// The saved file never contains two conflicting calls, because spdk_tgt could load only one of
// them.
func TestConflictingMissingCallsAreNotKept(t *testing.T) {
	larger := `{"method":"nvmf_create_transport","params":{"trtype":"TCP","max_queue_depth":64}}`
	for _, c := range []struct {
		name  string
		live  []string
		calls map[string]params
		want  string
	}{
		{"options that no call set", []string{larger}, nil, "128"},
		{"another bdev under the same NSID", []string{transportCall, subsystemCall("nqn.a"), namespaceCall("nqn.a", "v2", 1)}, map[string]params{"nvmf_subsystem_add_ns": {"nqn": "nqn.a"}}, "v2"},
		{"an object created by a call", []string{transportCall, `{"method":"nvmf_create_subsystem","params":{"nqn":"nqn.b","serial_number":"T"}}`}, map[string]params{"nvmf_create_subsystem": {"nqn": "nqn.b"}}, `"T"`},
		{"an object not created by a call", []string{transportCall, `{"method":"nvmf_create_subsystem","params":{"nqn":"nqn.b","serial_number":"T"}}`}, nil, `"S"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.target.restart("p1", exported())
			w.save()
			w.target.restart("p2", empty())
			w.target.set("nvmf", c.live...)
			for method, p := range c.calls {
				w.saver.Changed(method, p)
			}
			w.save()
			made := map[string]string{}
			for _, p := range places(w.load(Current)) {
				key := w.saver.identityKey(p)
				assert.NotContains(t, made, key, "%s", p.call)
				made[key] = string(p.call)
			}
			assert.Contains(t, fmt.Sprint(made), c.want)
			for range 2 { // repeated saves change nothing
				before := w.calls(Current)
				w.save()
				assert.Equal(t, before, w.calls(Current))
			}
		})
	}
}

// A disk does not count as missing if it reappears under another SPDK release.
func TestObjectThatReappearsInAnotherReleaseIsNotMissing(t *testing.T) {
	w := newWorld(t)
	w.target.restart("p1", exported())
	w.save()
	w.target.restart("p2", without(exported(), namespaceCall("nqn.a", "v1", 1)))
	w.target.release = "v26.01"
	w.save()
	assert.Len(t, w.saver.Status().Missing, 1)
	otherwise := `{"method":"nvmf_subsystem_add_ns","params":{"nqn":"nqn.a","namespace":{"nsid":1,"bdev_name":"v1","anagrpid":1}}}`
	w.target.config["nvmf"] = append(w.target.config["nvmf"], otherwise)
	w.save()
	assert.Empty(t, w.saver.Status().Missing)
	assert.Empty(t, w.load(Current).Saved.Kept)
}

// Saved files contain digests of calls. Later versions of the proxy must compute the same digests,
// however calls are formatted.
func TestCallDigestsDoNotDependOnFormatting(t *testing.T) {
	assert.Equal(t, "3ad885f83567e214e3945228ee933be9", digest([]byte(`{"method":"x","params":{"a":1}}`)))
	assert.Equal(t, digest([]byte(`{"method":"x","params":{"a":1}}`)), digest([]byte("{ \"method\": \"x\",\n\"params\": {\"a\": 1}}")))
}

// If the target's own configuration cannot be kept beside the saved file, the save fails.
func TestUnwritableHeldFileFailsTheSave(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T) *world{
		"an object is missing": func(t *testing.T) *world {
			w := newWorld(t)
			w.target.restart("p1", exported())
			w.save()
			w.target.restart("p2", without(exported(), namespaceCall("nqn.a", "v1", 1)))
			return w
		},
		"another file was chosen": func(t *testing.T) *world {
			w := newChoiceWorld(t)
			require.NoError(t, w.folder.Use(w.aside(asideReplaced)))
			w.target.set("nvmf", transportCall, subsystemCall("nqn.old"), subsystemCall("nqn.new"))
			return w
		},
	} {
		w := prepare(t)
		held := filepath.Join(w.dir, Held)
		require.NoError(t, os.RemoveAll(held))
		require.NoError(t, os.Mkdir(held, 0o700))
		require.ErrorContains(t, w.saver.Save(t.Context(), false), Held, name)
		require.NoError(t, os.Remove(held))
		require.NoError(t, w.saver.Save(t.Context(), false), name)
		assert.Contains(t, w.files(), Held, name)
	}
}
