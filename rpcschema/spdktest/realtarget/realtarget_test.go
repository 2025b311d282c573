package realtarget

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// recordedTest is a testing.TB that merely records the outcome.
type recordedTest struct {
	testing.TB
	ctx      context.Context
	fatal    string
	errors   []string
	logs     []string
	skipped  bool
	cleanups []func()
}

func (f *recordedTest) Helper()                   {}
func (f *recordedTest) Context() context.Context  { return f.ctx }
func (f *recordedTest) Cleanup(do func())         { f.cleanups = append(f.cleanups, do) }
func (f *recordedTest) Logf(s string, a ...any)   { f.logs = append(f.logs, fmt.Sprintf(s, a...)) }
func (f *recordedTest) Errorf(s string, a ...any) { f.errors = append(f.errors, fmt.Sprintf(s, a...)) }
func (f *recordedTest) Fatalf(s string, a ...any) { f.fatal = fmt.Sprintf(s, a...); panic(f) }
func (f *recordedTest) Skipf(s string, a ...any)  { f.skipped = true; panic(f) }

// run calls the function do with the result of Socket, within a recordedTest.
func run(t *testing.T, do func(socket string)) *recordedTest {
	f := &recordedTest{ctx: t.Context()}
	func() {
		defer func() {
			if p := recover(); p != nil && p != f {
				panic(p)
			}
		}()
		do(Socket(f))
	}()
	for _, c := range f.cleanups {
		c()
	}
	return f
}

func TestTargetIsEmptiedAfterTheTest(t *testing.T) {
	socket := os.Getenv(Variable) // the socket of a real target, or of a simulation
	if socket == "" {
		target, err := spdktest.Start(spdktest.Options{})
		require.NoError(t, err)
		defer func() { _ = target.Close() }()
		socket = target.Socket()
	}
	caller := spdkrpc.NewSocket(socket)
	defer func() { _ = caller.Close() }()
	call := func(method string, params map[string]any) {
		require.NoError(t, caller.Call(t.Context(), method, params, nil))
	}

	t.Setenv(Variable, "")
	assert.True(t, run(t, nil).skipped)
	t.Setenv(Variable, filepath.Join(t.TempDir(), "none"))
	assert.Contains(t, run(t, nil).fatal, "look at the target behind SPDK_SOCK=")

	t.Setenv(Variable, socket)
	disk := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(disk, make([]byte, 64<<20), 0o600))
	left := func(string) {
		call("bdev_aio_create", map[string]any{"name": "disk0", "filename": disk, "block_size": 4096})
		call("bdev_lvol_create_lvstore", map[string]any{"bdev_name": "disk0", "lvs_name": "lvs0"})
		call("bdev_lvol_create", map[string]any{"lvs_name": "lvs0", "lvol_name": "v", "size_in_mib": 8})
		call("bdev_lvol_snapshot", map[string]any{"lvol_name": "lvs0/v", "snapshot_name": "s"})
		call("bdev_malloc_create", map[string]any{"name": "m0", "num_blocks": 2048, "block_size": 512})
		call("bdev_passthru_create", map[string]any{"name": "p0", "base_bdev_name": "m0"})
		call("nvmf_create_subsystem", map[string]any{"nqn": "nqn.2016-06.io.spdk:left", "allow_any_host": true})
		call("nvmf_subsystem_add_ns", map[string]any{"nqn": "nqn.2016-06.io.spdk:left", "namespace": map[string]any{"bdev_name": "lvs0/v"}})
		call("iscsi_create_initiator_group", map[string]any{"tag": 7, "initiators": []string{"ANY"}, "netmasks": []string{"ANY"}})
	}
	f := run(t, left)
	assert.Empty(t, f.fatal)
	assert.Empty(t, f.errors)
	require.Len(t, f.logs, 1)
	for _, name := range []string{"subsystem nqn.2016-06.io.spdk:left", "initiator group 7", "lvstore lvs0", "bdev disk0", "bdev m0", "bdev p0"} {
		assert.Contains(t, f.logs[0], name)
	}
	found, err := list(t.Context(), caller)
	require.NoError(t, err)
	assert.Empty(t, found)
	assert.Empty(t, run(t, func(string) {}).fatal, "the target is empty again")

	left("")
	f = run(t, nil)
	found, err = list(t.Context(), caller)
	require.NoError(t, err)
	assert.Len(t, found, 8, "objects that the test did not create are not removed")
	assert.Contains(t, f.fatal, "holds subsystem nqn.2016-06.io.spdk:left, ")
	assert.Contains(t, f.fatal, "start a fresh one")
	_, remain, err := remove(t.Context(), caller)
	require.NoError(t, err)
	assert.Empty(t, remain)
}
