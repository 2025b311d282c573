package persist

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func newRemoving(t *testing.T, dir string) *removing {
	t.Helper()
	f, err := OpenFolder(dir, 2)
	require.NoError(t, err)
	return &removing{folder: f}
}

// A new proxy process reads the journal to learn which deletions had begun. The calls that began
// them ended with the previous proxy process.
func TestDeletionJournalSurvivesTheProxy(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	former := newRemoving(t, dir)
	require.NoError(t, former.add(map[string]*deletion{"u1": {Names: []string{"u1", "lvs/v"}, Store: "s", Process: "p1"}}))
	require.NoError(t, former.add(map[string]*deletion{"u2": {Names: []string{"u2"}, Store: "s", Process: "p1"}}))
	known, err := former.known()
	require.NoError(t, err)
	assert.False(t, known["u1"].ended || known["u2"].ended, "they are running")
	former.ended(map[string]*deletion{"u1": former.entries["u1"]})
	known, err = former.known()
	require.NoError(t, err)
	assert.Equal(t, []bool{true, false}, []bool{known["u1"].ended, known["u2"].ended})

	next := newRemoving(t, dir)
	require.NoError(t, next.add(map[string]*deletion{"u2": {Names: []string{"u2"}, Store: "s", Process: "p2"}}))
	known, err = next.known()
	require.NoError(t, err)
	assert.Equal(t, map[string]deletion{
		"u1": {Names: []string{"u1", "lvs/v"}, Store: "s", Process: "p1", ended: true}, "u2": {Names: []string{"u2"}, Store: "s", Process: "p2"},
	}, known, "the later call applies")
	assert.ElementsMatch(t, []string{"u1", "lvs/v"}, next.namesOf([]rpcschema.Name{{Kind: "bdev", Value: "lvs/v"}}))
	assert.Empty(t, next.namesOf([]rpcschema.Name{{Kind: "nqn", Value: "lvs/v"}, {Kind: "bdev", Value: "v"}}))
	require.NoError(t, next.forget([]string{"u1"}))
	known, err = newRemoving(t, dir).known()
	require.NoError(t, err)
	assert.Len(t, known, 1, "it has left the file")
	assert.NotContains(t, known, "u1")

	require.NoError(t, os.WriteFile(filepath.Join(dir, journalName), []byte(`{"u4": null, "u5": {"names": []}}`), 0o600))
	known, err = newRemoving(t, dir).known()
	require.NoError(t, err)
	assert.Len(t, known, 1, "an entry without content is ignored")
	require.NoError(t, os.Remove(filepath.Join(dir, journalName)))
	require.NoError(t, os.Mkdir(filepath.Join(dir, journalName), 0o700))
	_, err = newRemoving(t, dir).known()
	require.ErrorContains(t, err, "read the journal of deletions")
	require.Error(t, newRemoving(t, dir).add(map[string]*deletion{"u6": {}}))
}

// After a restart, the state of the new target process shows which deletions the previous process
// executed.
func TestInterruptedDeletionsAreResolvedAfterRestart(t *testing.T) {
	absent, broken := &spdkrpc.Error{Kind: spdkrpc.NoSuchDevice}, errors.New("broken")
	for name, c := range map[string]struct {
		process  string
		ended    bool
		bdev     error            // response to a query of the volume
		store    []error          // responses to queries of the volume's lvstore
		disk     string           // disk below an lvstore to be deleted
		config   string           // the target's configuration; by default, it examines the disk
		others   map[string]error // responses to the disk's query and to the wait
		removed  bool
		settled  bool
		question int
	}{
		"the same process, running":                    {process: "now", removed: true},
		"the same process, ended":                      {process: "now", ended: true, removed: true, settled: true},
		"the volume exists":                            {process: "old", settled: true, question: 1},
		"the volume is gone":                           {process: "old", bdev: absent, store: []error{nil}, removed: true, settled: true, question: 2},
		"its lvstore is missing":                       {process: "old", bdev: absent, store: []error{absent}, question: 2},
		"the volume's state is unknown":                {process: "old", bdev: broken, question: 1},
		"its lvstore is unknown":                       {process: "old", bdev: absent, store: []error{broken}, question: 2},
		"the call was running, and the volume is gone": {process: "old", ended: true, bdev: absent, store: []error{nil}, removed: true, settled: true, question: 2},

		"its lvstore is gone":                     {process: "old", bdev: absent, disk: "d", store: []error{absent, absent}, removed: true, settled: true, question: 6},
		"the target examines bdevs automatically": {process: "old", bdev: absent, disk: "d", store: []error{absent, absent}, config: `[{"method": "bdev_set_options", "params": {"bdev_auto_examine": true}}]`, removed: true, settled: true, question: 6},
		"its disk was not examined":               {process: "old", bdev: absent, disk: "d", store: []error{absent}, config: `[{"method": "bdev_set_options", "params": {"bdev_auto_examine": false}}, {"method": "bdev_examine", "params": {"name": "other"}}]`, question: 4},
		"what the target examines is unknown":     {process: "old", bdev: absent, disk: "d", store: []error{absent}, config: `{`, question: 4},
		"an examination finds its lvstore":        {process: "old", bdev: absent, disk: "d", store: []error{absent, nil}, removed: true, settled: true, question: 6},
		"only the volume of the lvstore is gone":  {process: "old", bdev: absent, disk: "d", store: []error{nil}, removed: true, settled: true, question: 2},
		"its disk is missing":                     {process: "old", bdev: absent, disk: "d", store: []error{absent}, others: map[string]error{"bdev_get_bdevs": absent}, question: 3},
		"its disk may be a volume":                {process: "old", bdev: absent, disk: "lvs/d", store: []error{absent}, question: 2},
		"the examination has not ended":           {process: "old", bdev: absent, disk: "d", store: []error{absent}, others: map[string]error{"bdev_wait_for_examine": broken}, question: 5},
		"its lvstore is unknown at the end":       {process: "old", bdev: absent, disk: "d", store: []error{absent, broken}, question: 6},
		"whether its lvstore exists is unknown":   {process: "old", bdev: absent, disk: "d", store: []error{broken}, question: 2},
	} {
		asked := 0
		ask := func(_ context.Context, method string, params map[string]any) (json.RawMessage, error) {
			asked++
			switch {
			case method == "bdev_lvol_get_lvstores":
				assert.Equal(t, map[string]any{"uuid": "s"}, params)
				next := c.store[0]
				c.store = c.store[1:]
				return nil, next
			case method == "bdev_get_bdevs" && params["name"] == "u":
				return nil, c.bdev
			case method == "framework_get_config":
				return json.RawMessage(cmp.Or(c.config, `[{"method": "bdev_examine", "params": {"name": "d"}}]`)), nil
			case method == "bdev_get_bdevs":
				assert.Equal(t, map[string]any{"name": c.disk}, params)
			default:
				assert.Equal(t, "bdev_wait_for_examine", method, "settle only reads")
			}
			return nil, c.others[method]
		}
		removals, settled := settle(t.Context(), Target{Process: "now", Ask: ask}, map[string]deletion{"u": {Names: []string{"u", "lvs/v"}, Store: "s", Disk: c.disk, Process: c.process, ended: c.ended}})
		assert.Equal(t, []any{c.removed, c.settled, c.question}, []any{len(removals) == 1, len(settled) == 1, asked}, name)
		if c.removed {
			assert.Equal(t, []string{"u", "lvs/v"}, removals[0].others, name)
		}
	}
}

// The deletion of an lvstore is recorded as a deletion of each of its volumes.
func TestDeletionOfAnLvstoreIsRecorded(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	s := &Saver{}
	s.removing.folder = newRemoving(t, dir).folder
	answers := map[string]string{
		"bdev_lvol_get_lvstores": `[{"uuid": "s", "name": "lvs", "base_bdev": "d"}]`,
		"bdev_get_bdevs": `[{"name": "d"}, {"name": "u1", "aliases": ["lvs/v1"], "driver_specific": {"lvol": {"lvol_store_uuid": "s"}}},
			{"name": "u2", "aliases": ["lvs/v2"], "driver_specific": {"lvol": {"lvol_store_uuid": "s"}}}, {"name": "u3", "aliases": ["other/v"], "driver_specific": {"lvol": {"lvol_store_uuid": "o"}}}]`,
	}
	ask := func(_ context.Context, method string, _ map[string]any) (json.RawMessage, error) {
		if answers[method] == "" {
			return nil, errors.New("refused")
		}
		return json.RawMessage(answers[method]), nil
	}
	end, err := s.Removing(t.Context(), ask, "bdev_lvol_delete_lvstore", map[string]any{"lvs_name": "lvs"}, "p")
	require.NoError(t, err)
	known, err := s.removing.known()
	require.NoError(t, err)
	assert.Equal(t, map[string]deletion{
		"u1": {Names: []string{"u1", "lvs/v1"}, Store: "s", Disk: "d", Process: "p"}, "u2": {Names: []string{"u2", "lvs/v2"}, Store: "s", Disk: "d", Process: "p"},
	}, known)
	end()
	known, err = s.removing.known()
	require.NoError(t, err)
	assert.True(t, known["u1"].ended && known["u2"].ended)

	for method, answer := range map[string]string{"bdev_lvol_get_lvstores": "[]", "bdev_get_bdevs": ""} { // SPDK will refuse the call
		before := answers[method]
		answers[method] = answer
		s.removing.entries = nil
		_, err = s.Removing(t.Context(), ask, "bdev_lvol_delete_lvstore", map[string]any{"lvs_name": "lvs"}, "p")
		require.NoError(t, err)
		assert.Empty(t, s.removing.entries, method)
		answers[method] = before
	}
}

func TestOnlyDeletionsOfExistingVolumesAreRecorded(t *testing.T) {
	const volume = `[{"name": "u", "aliases": ["lvs/v"], "driver_specific": {"lvol": {"lvol_store_uuid": "s"}}}]`
	for name, c := range map[string]struct {
		method, answer string
		params         map[string]any
		noted          bool
	}{
		"a volume":           {"bdev_lvol_delete", volume, map[string]any{"name": "lvs/v"}, true},
		"another call":       {"bdev_lvol_resize", volume, map[string]any{"name": "lvs/v"}, false},
		"no name":            {"bdev_lvol_delete", volume, map[string]any{"name": 7}, false},
		"not a volume":       {"bdev_lvol_delete", `[{"name": "u", "driver_specific": {}}]`, map[string]any{"name": "u"}, false},
		"no lvstore":         {"bdev_lvol_delete", `[{"name": "u", "driver_specific": {"lvol": {}}}]`, map[string]any{"name": "u"}, false},
		"none":               {"bdev_lvol_delete", `[]`, map[string]any{"name": "u"}, false},
		"several":            {"bdev_lvol_delete", `[{"name": "u"}, {"name": "w"}]`, map[string]any{"name": "u"}, false},
		"malformed response": {"bdev_lvol_delete", `{`, map[string]any{"name": "u"}, false},
		"refused query":      {"bdev_lvol_delete", "", map[string]any{"name": "u"}, false},
	} {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o700))
		f, err := OpenFolder(dir, 2)
		require.NoError(t, err)
		s := &Saver{}
		s.removing.folder = f
		r := &s.removing
		ask := func(_ context.Context, method string, params map[string]any) (json.RawMessage, error) {
			assert.Equal(t, "bdev_get_bdevs", method)
			if c.answer == "" {
				return nil, errors.New("refused")
			}
			return json.RawMessage(c.answer), nil
		}
		end, err := s.Removing(t.Context(), ask, c.method, c.params, "p")
		require.NoError(t, err, name)
		known, err := r.known()
		require.NoError(t, err)
		if !c.noted {
			assert.Empty(t, known, name)
			end()
			continue
		}
		assert.Equal(t, map[string]deletion{"u": {Names: []string{"u", "lvs/v"}, Store: "s", Process: "p"}}, known)
		end()
		known, err = r.known()
		require.NoError(t, err)
		assert.True(t, known["u"].ended)
	}
}
