package snapshot

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// twoTargets returns environments for two targets that share one driver.
func twoTargets(t *testing.T) []*environment {
	if runtime.NumCPU() < 2 {
		t.Skip("two targets need two cores, which they poll")
	}
	if claimSameCores(strings.Fields(os.Getenv("SPDK_TGT_ARGS"))) {
		t.Skip("SPDK_TGT_ARGS gives both targets the same cores, which only one process can claim: leave -m out, or add --disable-cpumask-locks")
	}
	return newEnvironments(newTargetOn(t, 0), newTargetOn(t, 1))
}

// claimSameCores reports whether targets with the same additional arguments claim the same cores,
// so that only one of them can start.
func claimSameCores(more []string) bool {
	cores := slices.ContainsFunc(more, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return strings.HasPrefix(arg, "-m") || name == "--cpumask" || name == "--lcores"
	})
	return cores && !slices.Contains(more, "--disable-cpumask-locks")
}

func TestTargetsWithSameCoresAreDetected(t *testing.T) {
	for args, want := range map[string]bool{
		"": false, "-p 0 --max-delay 1": false, "--memory-limit 5": false,
		"-m 0x2": true, "-m0x2": true, "--cpumask 0x2": true, "--cpumask=0x2": true, "--lcores=0@1": true,
		"-m 0x2 --disable-cpumask-locks": false,
	} {
		assert.Equal(t, want, claimSameCores(strings.Fields(args)), args)
	}
}

// Group snapshots of volumes on two targets preserve the order of dependent writes across them. Two
// group snapshots taken in succession, one for each target, do not preserve this order.
func TestGroupSnapshotsAcrossTargetsPreserveWriteOrder(t *testing.T) {
	all := twoTargets(t)
	var sources []string
	var targets []initiator.Target
	// Alternate between the targets, so that each write depends on a write to the other target.
	for i := range 4 {
		w := all[i%len(all)]
		v := w.create(fmt.Sprint("pvc-", i), "thin")
		sources, targets = append(sources, v.VolumeId), append(targets, w.publish(v, node))
	}
	groupsOnSeveralTargets(t, all, sources, startDependentWriter(t, targets))
}

// groupsOnSeveralTargets takes group snapshots of volumes while a writer writes to them in turn.
// The volumes alternate between the targets.
func groupsOnSeveralTargets(t *testing.T, all []*environment, sources []string, d orderedWriter) {
	t.Helper()
	at := func(uuids []string) (list []snapshotAt) {
		for i, id := range uuids {
			list = append(list, snapshotAt{all[i%len(all)].target, id})
		}
		return list
	}
	groups, brokenGroups := min(*rounds, 20), 0
	var pages [][4096]byte
	for _, w := range all {
		pages = append(pages, w.firstPage())
	}
	var stalls []time.Duration
	for round := range groups {
		d.progress(50)
		d.longest()
		group := all[0].takeGroup(fmt.Sprint("group-", round), sources)
		d.progress(uint64(len(sources)))
		stalls = append(stalls, d.longest())
		for i, w := range all {
			require.True(t, pages[i] == w.firstPage(), "round %d: the first metadata page of %s's store was overwritten", round, w.name)
		}
		if broken(t, at(inOrder(t, group, sources))) {
			brokenGroups++
		}
		all[0].deleteGroup(group)
	}
	assert.Zero(t, brokenGroups, "of %d groups", groups)

	separate, tries := 0, 10
	for round := range tries {
		d.progress(50)
		uuids := make([]string, len(sources))
		for i, w := range all {
			var own []string
			for j := i; j < len(sources); j += len(all) {
				own = append(own, sources[j])
			}
			for j, id := range inOrder(t, w.takeGroup(fmt.Sprint("separate-", round, "-", i), own), own) {
				uuids[j*len(all)+i] = id
			}
		}
		if broken(t, at(uuids)) {
			separate++
		}
	}
	assert.Positive(t, separate, "a group for each target broke no order: this test shows nothing")
	t.Logf("%d volumes on %d targets: %d of %d groups broken; the writer waited %v (median) to %v; with a group for each target %d of %d broken",
		len(sources), len(all), brokenGroups, groups, quantile(stalls, 0.5), quantile(stalls, 1), separate, tries)
}
