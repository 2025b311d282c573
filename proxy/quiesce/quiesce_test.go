package quiesce

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// To protect the lvstore, Take makes its calls in this order: freeze, snapshot, thaw.
func TestExportedVolumesAreFrozen(t *testing.T) {
	for release, drain := range map[string]string{"v26.05": "nvmf_subsystem_set_ns_ana_group", "v24.01": "nvmf_subsystem_add_ns"} {
		t.Run(release, func(t *testing.T) {
			b := newBench(t, release)
			b.volume("v0")
			b.export("v0", true)
			b.target.ForgetCalls()
			taken, err := b.take(want("v0", "s0"))
			require.NoError(t, err)
			require.Len(t, taken, 1)
			assert.True(t, taken[0].Frozen)
			assert.True(t, b.exists("s0"))
			assert.Equal(t, asExported, b.states("v0"))
			assert.Empty(t, b.entries())
			var order []string
			for _, c := range b.target.Calls() {
				switch c.Method {
				case "nvmf_subsystem_listener_set_ana_state":
					order = append(order, c.Params["ana_state"].(string))
					assert.EqualValues(t, "1", c.Params["anagrpid"].(interface{ String() string }).String(), "other namespaces remain accessible")
				case drain, "bdev_lvol_snapshot":
					order = append(order, c.Method)
				case "nvmf_subsystem_get_listeners":
					// this call pauses the subsystem, which then could not be drained
					if len(order) > 0 {
						order = append(order, c.Method)
					}
				}
			}
			assert.Equal(t, []string{inaccessible, inaccessible, drain, drain, "nvmf_subsystem_get_listeners", "bdev_lvol_snapshot"}, order[:6])
			assert.ElementsMatch(t, []string{optimized, nonOptimized}, slices.DeleteFunc(order[6:], func(s string) bool { return s == "nvmf_subsystem_get_listeners" }))
		})
	}
}

func TestUnusedVolumesAreNotFrozen(t *testing.T) {
	b := newBench(t, "v26.05")
	id := b.volume("v0")
	taken, err := b.take([]Snapshot{{Volume: id, Name: "s0"}})
	require.NoError(t, err)
	assert.False(t, taken[0].Frozen)
	assert.True(t, b.exists("s0"))
	assert.Zero(t, b.froze)
}

// All volumes of a group are frozen before the first snapshot is taken.
func TestSeveralVolumesAreFrozenTogether(t *testing.T) {
	b := newBench(t, "v26.05")
	for _, v := range []string{"v0", "v1", "v2", "v3"} {
		b.volume(v)
	}
	b.export("v0", true)
	b.subsystem("both", true)
	b.add("both", "v1")
	b.add("both", "v2")
	b.target.ForgetCalls()
	taken, err := b.take([]Snapshot{{"lvs0/v0", "s0", ""}, {"lvs0/v1", "s1", nqn("v0")}, {"lvs0/v2", "s2", nqn("no-such")}, {"lvs0/v3", "s3", ""}})
	require.NoError(t, err, "wrong hints do no harm")
	assert.Equal(t, []bool{true, true, true, false}, []bool{taken[0].Frozen, taken[1].Frozen, taken[2].Frozen, taken[3].Frozen})
	drained, thawed := 0, 0
	for _, c := range b.target.Calls() {
		switch {
		case c.Method == "nvmf_subsystem_set_ns_ana_group":
			drained++
		case c.Method == "bdev_lvol_snapshot":
			assert.Equal(t, 2*3, drained, "before the first snapshot")
			assert.Zero(t, thawed, "before the last snapshot")
		case c.Method == "nvmf_subsystem_listener_set_ana_state" && c.Params["ana_state"] != inaccessible:
			thawed++
		}
	}
	assert.Equal(t, 6, thawed)
	assert.Equal(t, asExported, b.states("both"))
}

func TestGroupSnapshotIsAtomic(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.volume("v1")
	b.export("v0", true)
	two := []Snapshot{{"lvs0/v0", "s0", ""}, {"lvs0/v1", "s1", ""}}
	b.target.Inject(spdktest.Fault{Method: "bdev_lvol_snapshot", Skip: 1, Do: spdktest.Fail, Error: jsonrpc.Errorf(-32602, "No space left on device")})
	_, err := b.take(two)
	require.ErrorIs(t, err, spdkrpc.InvalidParams)
	assert.False(t, b.exists("s0") || b.exists("s1"), "the snapshots that were taken are deleted")
	assert.Equal(t, asExported, b.states("v0"))

	b.target.Inject(spdktest.Fault{Method: "bdev_lvol_snapshot", Skip: 1, Do: spdktest.Fail})
	b.target.Inject(spdktest.Fault{Method: "bdev_lvol_delete", Do: spdktest.Fail})
	_, err = b.take(two)
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown, "the error says to look for leftover snapshots")
	assert.True(t, b.exists("s0") != b.exists("s1"))
}

func TestUnfreezableVolumesAreRefused(t *testing.T) {
	b := newBench(t, "v26.05")
	refused := func(volume string) {
		t.Helper()
		_, err := b.take([]Snapshot{{Volume: "lvs0/" + volume, Name: "s-" + volume}})
		var inUse *InUseError
		require.ErrorAs(t, err, &inUse)
		assert.Equal(t, "lvs0/"+volume, inUse.Volume)
		assert.False(t, b.exists("s-"+volume))
	}
	b.volume("plain")
	b.export("plain", false)
	refused("plain")

	b.volume("raw")
	_, err := b.rpc.BdevPassthruCreate(t.Context(), spdkrpc.BdevPassthruCreateParams{Name: "above", BaseBdevName: "lvs0/raw"})
	require.NoError(t, err)
	refused("raw")

	b.volume("lun")
	require.NoError(t, b.rpc.ISCSICreatePortalGroup(t.Context(), spdkrpc.ISCSICreatePortalGroupParams{Tag: 1, Portals: []spdkrpc.ISCSIPortal{{Host: "127.0.0.1", Port: "3260"}}}))
	require.NoError(t, b.rpc.ISCSICreateInitiatorGroup(t.Context(), spdkrpc.ISCSICreateInitiatorGroupParams{Tag: 1, Initiators: []string{"ANY"}, Netmasks: []string{"ANY"}}))
	require.NoError(t, b.rpc.ISCSICreateTargetNode(t.Context(), spdkrpc.ISCSICreateTargetNodeParams{
		Name: "lun", AliasName: "lun", LUNs: []spdkrpc.ISCSILUNParams{{BdevName: "lvs0/lun", LUNID: new(int32(0))}}, PGIGMaps: []spdkrpc.ISCSIPGIGMap{{PGTag: 1, IGTag: 1}}, QueueDepth: 64,
	}))
	refused("lun")
	_, err = b.q.Take(t.Context(), []Snapshot{{Volume: "lvs0/lun", Name: "s-lun"}}, Mode{Idle: true})
	require.NoError(t, err, "no initiator is connected")
	assert.Equal(t, 3, b.refused)

	b.volume("fine")
	b.export("fine", true)
	b.q.opts.Folder = nil
	refused("fine")
	assert.Zero(t, b.froze)
	assert.Equal(t, asExported, b.states("fine"))
}

// Clients that do not use freezing can take snapshots only of volumes that are not in use.
func TestSnapshotsWithoutFreezingRefuseVolumesInUse(t *testing.T) {
	for _, ana := range []bool{true, false} {
		b := newBench(t, "v26.05")
		b.volume("v0")
		b.export("v0", ana)
		mode := Mode{Idle: true}
		taken, err := b.q.Take(t.Context(), want("v0", "s0"), mode)
		require.NoError(t, err, "no host is connected")
		assert.False(t, taken[0].Frozen)

		require.NoError(t, b.target.ConnectHost(nqn("v0"), nqn("host")))
		_, err = b.q.Take(t.Context(), want("v0", "s1"), mode)
		var inUse *InUseError
		require.ErrorAs(t, err, &inUse)
		assert.False(t, b.exists("s1"))

		taken, err = b.q.Take(t.Context(), want("v0", "s2"), Mode{Idle: true, Freeze: true})
		if ana {
			require.NoError(t, err)
			assert.True(t, taken[0].Frozen)
		} else {
			require.ErrorAs(t, err, &inUse)
		}
	}
}

func TestInvalidVolumeListsAreRejected(t *testing.T) {
	b := newBench(t, "v26.05")
	id := b.volume("v0")
	b.export("v0", true)
	_, err := b.take([]Snapshot{{"lvs0/v0", "s0", ""}, {id, "s1", ""}})
	require.ErrorIs(t, err, spdkrpc.InvalidParams)
	_, err = b.take(want("nobody", "s0"))
	require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
	_, err = b.take([]Snapshot{{"base", "s0", ""}})
	require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
	_, err = b.take(want("v0", "s0"))
	require.NoError(t, err)
	_, err = b.take(want("v0", "s0"))
	var exists *ExistsError
	require.ErrorAs(t, err, &exists)
	assert.Equal(t, 1, b.froze, "freezing was necessary only once")
}

// If another client changes the subsystem while it is frozen, the thaw preserves the change.
func TestThawKeepsChangesByOtherClients(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", true)
	during := func(change func()) {
		t.Helper()
		b.target.ForgetCalls()
		b.target.Inject(spdktest.Fault{Method: "bdev_lvol_snapshot", Delay: 200 * time.Millisecond})
		done := make(chan error)
		go func() { _, err := b.take(want("v0", "s"+time.Now().Format("150405.000000"))); done <- err }()
		require.Eventually(t, func() bool { // the path is frozen, and its state has been read back
			return b.called("nvmf_subsystem_set_ns_ana_group") == 2 && b.called("nvmf_get_subsystems") == 3 && b.called("nvmf_subsystem_get_listeners") == 2
		}, time.Minute, time.Millisecond)
		change()
		require.NoError(t, <-done)
		assert.Empty(t, b.entries())
	}
	during(func() { b.set("v0", "4420", nonOptimized) })
	assert.Equal(t, nonOptimized, b.states("v0")["4420/1"])
	assert.Equal(t, nonOptimized, b.states("v0")["4421/1"])
	during(func() {
		require.NoError(t, b.rpc.NVMfSubsystemRemoveListener(t.Context(), spdkrpc.NVMfSubsystemRemoveListenerParams{NQN: nqn("v0"), ListenAddress: address("4420")}))
	})
	assert.Equal(t, map[string]string{"4421/1": nonOptimized, "4421/2": nonOptimized}, b.states("v0"))
	during(func() {
		require.NoError(t, b.rpc.NVMfDeleteSubsystem(t.Context(), spdkrpc.NVMfDeleteSubsystemParams{NQN: nqn("v0")}))
	})
}

// A path that was inaccessible before the freeze remains inaccessible.
func TestInaccessiblePathsStayInaccessible(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", true)
	b.set("v0", "4421", inaccessible)
	before := b.states("v0")
	_, err := b.take(want("v0", "s0"))
	require.NoError(t, err)
	assert.Equal(t, before, b.states("v0"))
}

// If an operation takes too long, its volumes are thawed, and no snapshot is taken.
func TestFreezeHasADeadline(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", true)
	b.target.Inject(spdktest.Fault{Method: "nvmf_subsystem_set_ns_ana_group", Delay: freezeTimeout + 200*time.Millisecond})
	_, err := b.take(want("v0", "s0"))
	var busy *BusyError
	require.ErrorAs(t, err, &busy)
	assert.False(t, b.exists("s0"))
	assert.Equal(t, asExported, b.states("v0"))
	assert.Empty(t, b.entries())
}

// If SPDK executes a call that freezes a path after the call's deadline, the path is thawed anyway.
func TestFreezeExecutedLateIsUndone(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", true)
	// The call for the second path is executed late. The thaw sets the state of this path whatever
	// state the target reports.
	b.target.Inject(spdktest.Fault{Method: "nvmf_subsystem_listener_set_ana_state", Skip: 1, Do: spdktest.Hang, Executed: true})
	_, err := b.take(want("v0", "s0"))
	var busy *BusyError
	require.ErrorAs(t, err, &busy)
	assert.Equal(t, asExported, b.states("v0"))
}

// An operation that has frozen volumes is completed even if its client disconnects.
func TestOperationContinuesWithoutItsClient(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", true)
	b.target.Inject(spdktest.Fault{Method: "bdev_lvol_snapshot", Delay: 100 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { _, err := b.q.Take(ctx, want("v0", "s0"), Mode{Freeze: true}); done <- err }()
	require.Eventually(t, func() bool { return len(b.entries()) == 1 }, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	assert.Equal(t, asExported, b.states("v0"))
	assert.True(t, b.exists("s0"))
	_, err := b.q.Take(ctx, want("v0", "s1"), Mode{Freeze: true})
	require.Error(t, err)
	assert.False(t, b.exists("s1"))
}

func TestJournalMustBePrivate(t *testing.T) {
	dir := t.TempDir() + "/frozen"
	_, err := FindFolder(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = OpenFolder(dir)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	_, err = OpenFolder(dir)
	assert.ErrorContains(t, err, "chmod 700")
	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.Symlink(t.TempDir(), dir))
	_, err = OpenFolder(dir)
	assert.ErrorContains(t, err, "is not a directory")
}

// If the journal is locked, an operation waits briefly.
func TestOperationWaitsForTheLockedJournal(t *testing.T) {
	f, err := OpenFolder(t.TempDir() + "/frozen")
	require.NoError(t, err)
	unlock, err := f.lock()
	require.NoError(t, err)
	time.AfterFunc(50*time.Millisecond, unlock)
	again, err := f.lock()
	require.NoError(t, err)
	defer again()
	_, err = f.lock()
	var busy *BusyError
	require.ErrorAs(t, err, &busy, "the operation does not wait indefinitely")
	assert.ErrorContains(t, err, "another process has locked")
}

// Without a journal, no volume is frozen, because nothing would thaw it after a crash.
func TestNothingIsFrozenWithoutAJournal(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, f *Folder, entry string){
		"the directory is missing": func(t *testing.T, f *Folder, _ string) { require.NoError(t, os.RemoveAll(f.path)) },
		"an entry is damaged": func(t *testing.T, f *Folder, entry string) {
			require.NoError(t, os.WriteFile(f.at(entry), []byte("{"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := OpenFolder(t.TempDir() + "/frozen")
			require.NoError(t, err)
			r, err := f.create(entry{Made: time.Now()})
			require.NoError(t, err)
			r.release()
			spoil(t, f, r.name)
			_, err = f.create(entry{Made: time.Now()})
			require.Error(t, err)
			if name == "the directory is missing" {
				_, err = f.cleanUp()
				require.Error(t, err)
				require.Error(t, f.sync())
			}
		})
	}
}
