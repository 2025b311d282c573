package export_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// A fixture is a target with bdevs to export. The target is simulated, or real if SPDK_SOCK is set.
// Tests that need real volumes, such as tests of crashes between two steps, are in package volume.
type fixture struct {
	*export.Service
	rpc   *spdkrpc.Client // without injected faults
	fault *drivertest.FaultyCaller
}

// newFixture starts a simulated target of an SPDK release; an empty release means the simulation's
// default. release has no effect on a real target.
func newFixture(t *testing.T, tr export.Transport, release string) *fixture {
	t.Helper()
	var socket string
	if realtarget.Given() {
		socket = realtarget.Socket(t)
	} else {
		var options spdktest.Options
		if release != "" {
			options.Release = rpcschema.MustRelease(release)
		}
		sim, err := spdktest.Start(options)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, sim.Close()) })
		socket = sim.Socket()
	}
	caller := spdkrpc.NewSocket(socket)
	t.Cleanup(func() { assert.NoError(t, caller.Close()) })
	f := &fixture{rpc: spdkrpc.NewClient(caller), fault: &drivertest.FaultyCaller{Caller: caller}}
	port := map[export.Transport]string{export.TCP: "4420", export.ISCSI: "3260"}[tr]
	f.Service = export.NewTarget(export.Config{Name: "t0", Transport: tr, Listen: []export.Portal{{Addr: "127.0.0.1", Port: port}}}).Service(spdkrpc.NewClient(f.fault))
	return f
}

// bdev creates a bdev with its UUID as its name, as with a volume.
func (f *fixture) bdev(t *testing.T) string {
	t.Helper()
	id := uuid.NewString()
	f.malloc(t, id)
	return id
}

func (f *fixture) malloc(t *testing.T, id string) {
	t.Helper()
	_, err := f.rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: &id, UUID: &id, NumBlocks: 1024, BlockSize: 4096})
	require.NoError(t, err)
}

// through returns a service in the same process that uses another caller.
func (f *fixture) through(c spdkrpc.Caller) *export.Service {
	return f.Target.Service(spdkrpc.NewClient(c))
}

// listeningOn returns the service of another process with other portals in its configuration.
func (f *fixture) listeningOn(portals ...export.Portal) *export.Service {
	config := f.Config
	config.Listen = portals
	return export.NewTarget(config).Service(spdkrpc.NewClient(f.fault))
}

// otherController returns the service of another process.
func (f *fixture) otherController(c spdkrpc.Caller) *export.Service {
	return export.NewTarget(f.Config).Service(spdkrpc.NewClient(c))
}

func (f *fixture) subsystem(t *testing.T, id string) spdkrpc.NVMfSubsystem {
	t.Helper()
	return drivertest.Subsystem(t, f.rpc, id)
}

func (f *fixture) portalGroups(t *testing.T) []spdkrpc.ISCSIPortalGroup {
	t.Helper()
	groups, err := f.rpc.ISCSIGetPortalGroups(t.Context())
	require.NoError(t, err)
	return groups
}

func (f *fixture) initiatorGroups(t *testing.T) []spdkrpc.ISCSIInitiatorGroup {
	t.Helper()
	groups, err := f.rpc.ISCSIGetInitiatorGroups(t.Context())
	require.NoError(t, err)
	return groups
}

func admit(ctx context.Context, s *export.Service, id string, h export.Host) error {
	_, err := s.Admit(ctx, id, h, mayExport)
	return err
}

func mayExport(context.Context) error { return nil }
