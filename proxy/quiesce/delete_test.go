package quiesce

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// plainly returns a Call that deletes a volume with bdev_lvol_delete, without a freeze.
func (b *bench) plainly(name string) Call {
	return func() (<-chan struct{}, error) {
		return nil, b.rpc.BdevLvolDelete(context.Background(), spdkrpc.BdevLvolDeleteParams{Name: "lvs0/" + name})
	}
}

func (b *bench) delete(name string, mode Mode) (bool, error) {
	return b.q.Delete(context.Background(), "lvs0/"+name, mode, b.plainly(name))
}

func (b *bench) snapshot(volume, name string) {
	_, err := b.rpc.BdevLvolSnapshot(b.t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: "lvs0/" + volume, SnapshotName: name})
	require.NoError(b.t, err)
}

// While SPDK hands over the clusters of a deleted snapshot to its clone, the clone is frozen.
func TestCloneIsFrozenDuringDeletion(t *testing.T) {
	for release, drain := range map[string]string{"v26.05": "nvmf_subsystem_set_ns_ana_group", "v24.01": "nvmf_subsystem_add_ns"} {
		b := newBench(t, release)
		b.volume("v0")
		b.export("v0", true)
		b.snapshot("v0", "s0")
		b.target.ForgetCalls()
		frozen, err := b.q.Delete(t.Context(), "lvs0/s0", Mode{Freeze: true}, func() (<-chan struct{}, error) { return nil, errors.New("Delete does not call plain") })
		require.NoError(t, err)
		assert.True(t, frozen)
		assert.False(t, b.exists("s0"))
		assert.Equal(t, asExported, b.states("v0"))
		assert.Empty(t, b.entries())
		var order []string
		for _, c := range b.target.Calls() {
			switch c.Method {
			case "nvmf_subsystem_listener_set_ana_state":
				order = append(order, c.Params["ana_state"].(string))
			case drain, "bdev_lvol_delete":
				order = append(order, c.Method)
			}
		}
		assert.Equal(t, []string{inaccessible, inaccessible, drain, drain, "bdev_lvol_delete"}, order[:5])
		assert.ElementsMatch(t, []string{optimized, nonOptimized}, order[5:])
	}
}

// A deletion that does not change a volume in use freezes nothing.
func TestDeletionOfUnusedVolumesFreezesNothing(t *testing.T) {
	b := newBench(t, "v26.05")
	for _, v := range []string{"alone", "unused", "v0"} {
		b.volume(v)
	}
	b.export("v0", true)
	b.snapshot("unused", "s0")
	b.snapshot("v0", "low")
	b.snapshot("v0", "high")
	for _, name := range []string{"alone", "s0", "low"} { // low is the parent of another snapshot
		frozen, err := b.delete(name, Mode{Freeze: true})
		require.NoError(t, err, name)
		assert.False(t, frozen, name)
		assert.False(t, b.exists(name), name)
	}
	_, err := b.rpc.BdevLvolClone(t.Context(), spdkrpc.BdevLvolCloneParams{SnapshotName: "lvs0/high", CloneName: "another"})
	require.NoError(t, err)
	_, err = b.delete("high", Mode{Freeze: true})
	require.ErrorIs(t, err, spdkrpc.Failed, "SPDK refuses the deletion, because the snapshot has two clones")
	_, err = b.delete("nobody", Mode{Freeze: true})
	require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
	assert.Zero(t, b.froze)
	assert.Zero(t, b.refused)
}

func TestDeleteRefusesUnfreezableClones(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", false)
	b.snapshot("v0", "s0")
	var inUse *InUseError
	_, err := b.delete("s0", Mode{Freeze: true})
	require.ErrorAs(t, err, &inUse)
	assert.Equal(t, "lvs0/v0", inUse.Volume)
	assert.ErrorContains(t, err, "below a volume that is being written")
	require.NoError(t, b.target.ConnectHost(nqn("v0"), nqn("host")))
	_, err = b.delete("s0", Mode{Idle: true})
	require.ErrorAs(t, err, &inUse)
	assert.ErrorContains(t, err, "spdkgate_lvol_delete")
	assert.True(t, b.exists("s0"))
	assert.Equal(t, 2, b.refused)
	require.NoError(t, b.rpc.NVMfDeleteSubsystem(t.Context(), spdkrpc.NVMfDeleteSubsystemParams{NQN: nqn("v0")}))
	_, err = b.delete("s0", Mode{Idle: true})
	require.NoError(t, err, "it is detached")
}

// Calls that change a clone wait while its parent snapshot is being deleted.
func TestCallsOnTheCloneWaitForTheDeletion(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.snapshot("v0", "s0")
	_, err := b.q.Delete(t.Context(), "lvs0/s0", Mode{Freeze: true}, func() (<-chan struct{}, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := b.q.Share(ctx, []string{"lvs0/v0"})
		require.ErrorIs(t, err, context.DeadlineExceeded, "the clone is not exported during the deletion")
		return b.plainly("s0")()
	})
	require.NoError(t, err)
	give, err := b.q.Share(t.Context(), []string{"lvs0/v0"})
	require.NoError(t, err)
	give()
}

// SPDK skips clusters when it inflates two volumes of an lvstore concurrently, whether or not the
// volumes are related.
func TestVolumesInAnLvstoreAreInflatedOneAtATime(t *testing.T) {
	b := newBench(t, "v26.05")
	_, err := b.rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: new("base1"), NumBlocks: 262144, BlockSize: 4096})
	require.NoError(t, err)
	_, err = b.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "base1", LvsName: "lvs1"})
	require.NoError(t, err)
	for _, name := range []string{"lvs0/a", "lvs0/b", "lvs1/c"} {
		store, lvol, _ := strings.Cut(name, "/")
		_, err := b.rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: lvol, LvsName: &store, SizeInMiB: 4})
		require.NoError(t, err)
	}
	nothing := func() (<-chan struct{}, error) { return nil, nil }
	require.NoError(t, b.q.WhileUnused(t.Context(), "lvs0/a", nil, true, Mode{}, func() (<-chan struct{}, error) {
		var busy *BusyError
		assert.ErrorAs(t, b.q.WhileUnused(t.Context(), "lvs0/b", nil, true, Mode{}, nothing), &busy)
		assert.NoError(t, b.q.WhileUnused(t.Context(), "lvs1/c", nil, true, Mode{}, nothing), "another lvstore")
		assert.NoError(t, b.q.WhileUnused(t.Context(), "lvs0/b", nil, false, Mode{}, nothing), "nothing is inflated")
		return nil, nil
	}))
	require.NoError(t, b.q.WhileUnused(t.Context(), "lvs0/b", nil, true, Mode{}, nothing))
}

// nbdDisks is a Caller that reports an NBD device for bdev, or no device if bdev is empty. If fails
// is not 0, the query with this number fails.
type nbdDisks struct {
	spdkrpc.Caller
	bdev  *string
	fails *int
}

var errNoNBDDisks = &spdkrpc.Error{Method: "nbd_get_disks", Kind: spdkrpc.Failed, Message: "Internal error"}

func (n nbdDisks) Call(ctx context.Context, method string, params, result any) error {
	if disks, is := result.(*[]spdkrpc.NBDDisk); is {
		if *n.bdev != "" {
			*disks = []spdkrpc.NBDDisk{{NBDDevice: "/dev/nbd0", BdevName: *n.bdev}}
		}
		if *n.fails--; *n.fails == 0 {
			return errNoNBDDisks
		}
		return nil
	}
	return n.Caller.Call(ctx, method, params, result)
}

// No volume is inflated while an NBD device may be writing to its lvstore, because SPDK does both
// on the same thread.
func TestInflationIsRefusedWhileNBDMayWrite(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.volume("v1")
	disk, fails := "lvs0/v1", 0
	b.q.opts.Connect = func(ctx context.Context, at Place) (*Target, error) {
		target, err := connect(ctx, at)
		if err == nil {
			target.Caller = nbdDisks{target.Caller, &disk, &fails}
		}
		return target, err
	}
	inflate := func(mode Mode) error {
		return b.q.WhileUnused(t.Context(), "lvs0/v0", nil, true, mode, func() (<-chan struct{}, error) { return nil, nil })
	}
	var inUse *InUseError
	require.ErrorAs(t, inflate(Mode{}), &inUse)
	assert.Contains(t, inUse.Error(), "/dev/nbd0")
	disk = "base"
	require.ErrorAs(t, inflate(Mode{}), &inUse, "a bdev that is not a volume may be built on one")
	require.NoError(t, inflate(Mode{Unchecked: true}))
	disk = ""
	for _, fails = range []int{1, 2} {
		require.ErrorIs(t, inflate(Mode{}), errNoNBDDisks)
	}
}

func TestWhileUnusedRefusesVolumesInUse(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	done := 0
	do := func() (<-chan struct{}, error) { done++; return nil, nil }
	require.NoError(t, b.q.WhileUnused(t.Context(), "lvs0/v0", nil, false, Mode{}, do))
	require.NoError(t, b.q.WhileUnused(t.Context(), "lvs0/nobody", nil, false, Mode{}, do), "SPDK itself refuses the call")
	b.export("v0", true)
	var inUse *InUseError
	require.ErrorAs(t, b.q.WhileUnused(t.Context(), "lvs0/v0", nil, false, Mode{}, do), &inUse)
	assert.Equal(t, 2, done)
}

// Whichever call of a deletion fails, the states of the paths are restored, and the reported
// outcome of the deletion is correct.
func TestFailedCallOfADeletionLeavesNothingFrozen(t *testing.T) {
	fresh := func() *bench {
		b := newBench(t, "v26.05")
		b.volume("v0")
		b.export("v0", true)
		b.snapshot("v0", "s0")
		b.q.grace = 50 * time.Millisecond
		b.target.ForgetCalls()
		return b
	}
	b := fresh()
	_, err := b.delete("s0", Mode{Freeze: true})
	require.NoError(t, err)
	calls := countedCalls(b.target)
	deletion := slices.IndexFunc(calls, func(c spdktest.Call) bool { return c.Method == "bdev_lvol_delete" })
	for i, call := range calls {
		for name, fault := range map[string]spdktest.Fault{
			"fails":                              {Do: spdktest.Fail},
			"fails after execution":              {Do: spdktest.Fail, Executed: true},
			"ends the connection":                {Do: spdktest.Close},
			"ends the connection after the call": {Do: spdktest.Close, Executed: true},

			"crashes the target before the call": {Do: spdktest.Crash},
			"crashes the target after the call":  {Do: spdktest.Crash, Executed: true},
		} {
			t.Run(fmt.Sprint(i, " ", call.Method, " ", name), func(t *testing.T) {
				b := fresh()
				fault.Skip = i
				b.target.Inject(fault)
				_, err := b.delete("s0", Mode{Freeze: true})
				if fault.Do == spdktest.Crash {
					var busy *BusyError
					switch gone := errors.As(err, &busy) || errors.Is(err, spdkrpc.Unreachable) || errors.Is(err, ErrAway); {
					case call.Method == "bdev_lvol_delete":
						require.ErrorIs(t, err, spdkrpc.OutcomeUnknown, "the deletion may have been executed")
						assert.False(t, gone)
					case i < deletion:
						assert.True(t, gone, "the error states that nothing was executed: %v", err)
					default:
						require.NoError(t, err, "SPDK responded to the deletion")
					}
					before := b.called("nvmf_subsystem_listener_set_ana_state")
					require.NoError(t, b.target.Restart())
					b.settled(t) // paths frozen in the old process are not thawed in the new process
					assert.Equal(t, before, b.called("nvmf_subsystem_listener_set_ana_state"))
					return
				}
				b.target.ClearFaults()
				b.settled(t)
				assert.Equal(t, asExported, b.states("v0"))
				var inUse *InUseError
				var busy *BusyError
				switch there := b.exists("s0"); {
				case err == nil:
					assert.False(t, there)
				case errors.As(err, &inUse), errors.As(err, &busy), errors.Is(err, spdkrpc.Unreachable):
					assert.True(t, there, "%v", err)
				case fault.Executed && call.Method == "bdev_lvol_delete":
				default:
					assert.True(t, there, "%v", err)
				}
			})
		}
	}
}

// countedCalls returns the calls that count for a Fault's Skip.
func countedCalls(target *spdktest.Target) []spdktest.Call {
	return slices.DeleteFunc(target.Calls(), func(c spdktest.Call) bool { return c.Err != nil && c.Err.Code == jsonrpc.CodeMethodNotFound })
}

// TestDeletingChildProcess is the proxy process that TestKilledDeletionLeavesNothingFrozen starts
// and kills.
func TestDeletingChildProcess(t *testing.T) {
	folder, socket := os.Getenv(childEnv), os.Getenv(childEnv+"_SOCKET")
	if folder == "" {
		t.Skip("it is started by TestKilledDeletionLeavesNothingFrozen")
	}
	f, err := OpenFolder(folder)
	require.NoError(t, err)
	q := New(Options{Folder: f, At: Place{Socket: socket}, Connect: connect, Process: process})
	q.lockTimeout, q.freezeTimeout = time.Minute, time.Minute // so that the kill comes first
	_, err = q.Delete(context.Background(), "lvs0/"+os.Getenv(childEnv+"_SNAPSHOT"), Mode{Freeze: true}, func() (<-chan struct{}, error) { return nil, nil })
	require.NoError(t, err)
}

// If a proxy is killed during a deletion, no volume stays frozen for long.
func TestKilledDeletionLeavesNothingFrozen(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.export("v0", true)
	b.q.grace = 50 * time.Millisecond
	r := newRelay(t, b.target.Socket())
	run := func(snapshot string, at int32) (killed bool) {
		b.snapshot("v0", snapshot)
		child := exec.Command(os.Args[0], "-test.run=^TestDeletingChildProcess$")
		child.Env = append(os.Environ(), childEnv+"="+b.folder.path, childEnv+"_SOCKET="+r.socket, childEnv+"_SNAPSHOT="+snapshot)
		var once sync.Once
		started := make(chan struct{})
		r.strike(at, true, func() { once.Do(func() { <-started; _ = child.Process.Kill() }) })
		require.NoError(t, child.Start())
		close(started)
		_ = child.Wait()
		return !child.ProcessState.Success()
	}
	require.False(t, run("whole", -1))
	calls := r.count.Load()
	left := 0
	for at := range calls {
		require.True(t, run(fmt.Sprint("s", at), at), "call %d", at)
		if len(b.entries()) > 0 {
			left++
		}
		b.settled(t)
		assert.Equal(t, asExported, b.states("v0"), "killed after call %d", at)
	}
	assert.GreaterOrEqual(t, left, 4, "the proxy was killed at least once while volumes were frozen")
}

// Options.Deleting is called before anything is frozen. Calls that must not run during a deletion
// cannot begin until SPDK has responded. The same applies to group snapshots, because undoing them
// would delete snapshots.
func TestDeletionsPrepareBeforeFreezing(t *testing.T) {
	b := newBench(t, "v24.01")
	b.volume("v0")
	b.volume("v1")
	b.export("v0", true)
	b.snapshot("v0", "s0")
	snapshots := func() error {
		b.target.Inject(spdktest.Fault{Method: "bdev_lvol_snapshot", Skip: 1, Do: spdktest.Fail})
		_, err := b.take([]Snapshot{{"lvs0/v0", "s1", ""}, {"lvs0/v1", "s2", ""}})
		return err
	}
	deletion := func() error { _, err := b.delete("s0", Mode{Freeze: true}); return err }
	for _, c := range []struct {
		name string
		do   func() error
		err  error
	}{{"undone snapshots", snapshots, spdkrpc.Failed}, {"deletion", deletion, nil}} {
		refused := errors.New("volumes are being listed")
		b.q.opts.Deleting = func(ctx context.Context, r rpcschema.Release) (func(), error) {
			assert.Equal(t, "v24.01", r.String())
			_, bounded := ctx.Deadline()
			assert.True(t, bounded, "the wait has a deadline")
			return nil, refused
		}
		b.target.ForgetCalls()
		var busy *BusyError
		require.ErrorAs(t, c.do(), &busy, c.name)
		require.ErrorIs(t, busy.Err, refused)
		assert.Contains(t, busy.Why, "listed")
		assert.Zero(t, b.called("nvmf_subsystem_listener_set_ana_state")+b.called("bdev_lvol_snapshot")+b.called("bdev_lvol_delete"), c.name)
		b.target.ClearFaults()

		entered, left := 0, 0
		b.q.opts.Deleting = func(context.Context, rpcschema.Release) (func(), error) {
			entered++
			assert.Zero(t, b.called("nvmf_subsystem_listener_set_ana_state"), "no path is frozen yet: %s", c.name)
			return func() {
				left++
				assert.Equal(t, 1, b.called("bdev_lvol_delete"), "leave was called: %s", c.name)
			}, nil
		}
		require.ErrorIs(t, c.do(), c.err, c.name)
		assert.Equal(t, []int{1, 1}, []int{entered, left}, c.name)
	}
	b.q.opts.Deleting = func(context.Context, rpcschema.Release) (func(), error) {
		return nil, errors.New("a single snapshot never has to be undone")
	}
	_, err := b.take(want("v0", "s3"))
	require.NoError(t, err)
}
