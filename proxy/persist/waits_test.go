package persist

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// limitedVolumes returns a configuration with a limit on each volume, as SPDK saves it.
func limitedVolumes(volumes ...string) map[string][]string {
	c := empty()
	c["bdev"] = []string{optionsCall}
	for _, v := range volumes {
		c["bdev"] = append(c["bdev"], fmt.Sprintf(`{"method":"bdev_set_qos_limit","params":{"name":%q,"rw_mbytes_per_sec":9}}`, v))
	}
	c["bdev"] = append(c["bdev"], examineCall)
	return c
}

// waits counts the waits for each bdev in the current file.
func (w *world) waits() map[string]int {
	n := map[string]int{}
	for _, p := range places(w.load(Current)) {
		e, err := entryOf(p.call)
		require.NoError(w.t, err)
		if e.Method == "bdev_get_bdevs" {
			n[e.Params["name"].(string)]++
		}
	}
	return n
}

func one(names ...string) map[string]int {
	n := map[string]int{}
	for _, name := range names {
		n[name] = 1
	}
	return n
}

// A wait does not count as missing merely because its timeout differs. Timeouts depend on the order
// and number of the limits, which change with each start and each deletion.
func TestWaitsWithDifferentTimeoutsAreNotMissing(t *testing.T) {
	for name, now := range map[string][]string{
		"limits in another order":    {"d", "c", "b", "a"},
		"the first limit is new":     {"e", "a", "b", "c", "d"},
		"the first limit is deleted": {"b", "c", "d"},
	} {
		for _, release := range []string{"v26.05", "v26.09"} {
			t.Run(name+" "+release, func(t *testing.T) {
				w := newWorld(t)
				w.target.restart("p1", limitedVolumes("a", "b", "c", "d"))
				w.save()
				require.Equal(t, one("a", "b", "c", "d"), w.waits())
				before := w.load(Current)
				w.target.restart("p2", limitedVolumes(now...))
				w.target.release = release
				if !slices.Contains(now, "a") {
					w.saver.Changed("bdev_lvol_delete", params{"name": "a"})
				}
				for range 2 {
					w.save()
					assert.Empty(t, w.saver.Status().Missing)
					assert.Equal(t, one(now...), w.waits())
					assert.NotContains(t, w.files(), Held)
				}
				after := w.load(Current)
				assert.Equal(t, name == "limits in another order", compare(w.saver.opts.Schema, before, after).same(before, after))
			})
		}
	}
}

// However often the target restarts, the file contains only one wait for a missing volume, before
// the call that sets the volume's limit.
func TestRestartsDoNotAccumulateWaits(t *testing.T) {
	w := newWorld(t)
	w.target.restart("p1", limitedVolumes("a", "b", "c", "d"))
	w.save()
	for i, now := range [][]string{{"d", "b"}, {"b", "d"}, {"c", "d", "b"}, {"d", "c"}, {"a"}} {
		w.target.restart(fmt.Sprint("p", i+2), limitedVolumes(now...))
		w.save()
		assert.Equal(t, one("a", "b", "c", "d"), w.waits(), "%v", now)
		waited := map[string]bool{}
		for _, p := range placesOf(w.load(Current), "bdev") {
			e, err := entryOf(p.call)
			require.NoError(t, err)
			name, _ := e.Params["name"].(string)
			switch e.Method {
			case "bdev_get_bdevs":
				waited[name] = true
			case "bdev_set_qos_limit":
				assert.True(t, waited[name], "the wait for %s comes before its limit", name)
			}
		}
		assert.Len(t, slices.Collect(maps.Keys(waited)), 4)
	}
	w.target.restart("last", limitedVolumes("a", "b", "c", "d"))
	w.save()
	assert.Empty(t, w.saver.Status().Missing)
}

// Files saved by earlier versions of the proxy contain several waits for one volume, some of them
// recorded as missing calls. The saver drops the superfluous waits.
func TestRepeatedWaitsFromOlderProxiesAreDropped(t *testing.T) {
	w := newWorld(t)
	w.target.restart("p1", limitedVolumes("a", "b"))
	w.save()
	piled := w.load(Current)
	piled.Saved.Kept = map[string]string{}
	for i, s := range piled.Subsystems {
		if s.Name == "bdev" {
			for earlier := range 4 {
				wait := waitFor("b", earlier)
				piled.Subsystems[i].Calls = append(piled.Subsystems[i].Calls, wait)
				piled.Saved.Kept[digest(wait)] = "v26.05"
			}
		}
	}
	for _, process := range []string{"p1", "p2"} {
		require.NoError(t, w.folder.replace(piled, ""))
		require.Equal(t, map[string]int{"a": 1, "b": 5}, w.waits())
		w.target.restart(process, limitedVolumes("b", "a"))
		w.save()
		assert.Empty(t, w.saver.Status().Missing)
		assert.Equal(t, one("a", "b"), w.waits(), process)
	}
}
