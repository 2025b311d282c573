package export

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A fixture is a simulated target with some bdevs to export. What takes volumes to test, such as crashes between two steps,
// is tested by package volume, on real targets too.
type fixture struct {
	*Service
	rpc    *spdkrpc.Client
	caller spdkrpc.Caller
}

func newFixture(t *testing.T, tr Transport, release string) *fixture {
	t.Helper()
	sim, err := spdktest.Start(spdktest.Options{Release: rpcschema.MustRelease(release)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, sim.Close()) })
	socket := spdkrpc.NewSocket(sim.Socket())
	t.Cleanup(func() { assert.NoError(t, socket.Close()) })
	f := &fixture{rpc: spdkrpc.NewClient(socket), caller: socket}
	port := map[Transport]string{TCP: "4420", ISCSI: "3260"}[tr]
	f.Service = NewTarget(Config{Name: "t0", Transport: tr, ListenAddr: "127.0.0.1", ListenPort: port}).Service(f.rpc)
	return f
}

// bdev makes a bdev that is named by its UUID, as that of a volume is.
func (f *fixture) bdev(t *testing.T) string {
	t.Helper()
	id := uuid.NewString()
	_, err := f.rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: &id, UUID: &id, NumBlocks: 1024, BlockSize: 4096})
	require.NoError(t, err)
	return id
}

func (f *fixture) through(c spdkrpc.Caller) *Service { return f.Target.Service(spdkrpc.NewClient(c)) }

func host(name string) Host {
	id := uuid.NewSHA1(uuid.NameSpaceDNS, []byte(name)).String()
	return Host{NQN: "nqn.2014-08.org.nvmexpress:uuid:" + id, IQN: "iqn.2026-11.io.spdkgate:host:" + id}
}

// multipathHost also has the name under which nodes with native multipath connect.
func multipathHost(name string) Host {
	h := host(name)
	id := uuid.NewSHA1(uuid.NameSpaceURL, []byte(name))
	id[6] = id[6]&0x0f | 0x80
	h.Multipath = "nqn.2014-08.org.nvmexpress:uuid:" + id.String()
	return h
}

func TestOneHostAtATime(t *testing.T) {
	for _, tr := range []Transport{TCP, ISCSI} {
		for _, release := range []string{"v24.01", "v26.05", "v26.09"} {
			t.Run(string(tr)+" "+release, func(t *testing.T) {
				f := newFixture(t, tr, release)
				ctx, id := t.Context(), f.bdev(t)
				exists := func() bool {
					there, err := f.Exists(ctx, id)
					require.NoError(t, err)
					return there
				}
				assert.False(t, exists())
				require.NoError(t, f.RemoveUnused(ctx, id), "there is none")
				require.NoError(t, f.Withdraw(ctx, id, nil), "there is none")
				for range 2 {
					multipath, err := f.Admit(ctx, id, host("n1"))
					require.NoError(t, err)
					assert.False(t, multipath)
				}
				assert.True(t, exists())
				_, err := f.Admit(ctx, id, host("n2"))
				require.ErrorIs(t, err, ErrInUse)
				require.ErrorIs(t, f.RemoveUnused(ctx, id), ErrInUse)
				require.NoError(t, f.Withdraw(ctx, id, new(host("n2"))), "it was not admitted")
				assert.True(t, exists())
				for range 2 {
					require.NoError(t, f.Withdraw(ctx, id, new(host("n1"))))
				}
				assert.False(t, exists())
				_, err = f.Admit(ctx, id, host("n2"))
				require.NoError(t, err)
				require.NoError(t, f.Withdraw(ctx, id, nil), "of all hosts")
				assert.False(t, exists())
			})
		}
	}
}

// The subsystem leads to the volume, by its UUID, and admits no host but the one.
func TestSubsystem(t *testing.T) {
	f := newFixture(t, TCP, "v26.05")
	id, h := f.bdev(t), multipathHost("n1")
	multipath, err := f.Admit(t.Context(), id, h)
	require.NoError(t, err)
	assert.True(t, multipath)
	subs, err := f.rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{NQN: new(NQN(id))})
	require.NoError(t, err)
	require.Len(t, subs, 1)
	sub := subs[0]
	assert.False(t, sub.AllowAnyHost)
	assert.ElementsMatch(t, []spdkrpc.NVMfSubsystemHost{{NQN: h.NQN}, {NQN: h.Multipath}}, sub.Hosts)
	assert.Equal(t, serial(id), *sub.SerialNumber)
	require.Len(t, sub.Namespaces, 1)
	assert.Equal(t, id, *sub.Namespaces[0].UUID)
	require.Len(t, sub.ListenAddresses, 1)
	assert.Equal(t, "4420", sub.ListenAddresses[0].Trsvcid)
	_, err = f.Admit(t.Context(), id, multipathHost("n2"))
	require.ErrorIs(t, err, ErrInUse)
	assert.ErrorContains(t, err, h.NQN, "by the name that nodes are known by")
}

// What exports another bdev under the volume's name was not made by this package, and stays as it is.
func TestForeignExport(t *testing.T) {
	f := newFixture(t, TCP, "v26.05")
	id, other := f.bdev(t), f.bdev(t)
	require.NoError(t, f.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: NQN(id)}))
	_, err := f.rpc.NVMfSubsystemAddNS(t.Context(), spdkrpc.NVMfSubsystemAddNSParams{NQN: NQN(id), Namespace: spdkrpc.NVMfNamespaceParams{BdevName: other}})
	require.NoError(t, err)
	_, err = f.Admit(t.Context(), id, host("n1"))
	require.ErrorIs(t, err, ErrForeign)
}

// connected makes hosts look connected to every subsystem, which they are at real targets only.
type connected struct {
	spdkrpc.Caller
	hosts []string
}

func (c connected) Call(ctx context.Context, method string, params, result any) error {
	err := c.Caller.Call(ctx, method, params, result)
	if list, ok := result.(*[]spdkrpc.NVMfController); ok && err == nil {
		for _, h := range c.hosts {
			*list = append(*list, spdkrpc.NVMfController{Hostnqn: h})
		}
	}
	return err
}

// A connected host that would fail its I/O while the volume is frozen keeps it from being frozen.
func TestHostsThatHoldIO(t *testing.T) {
	f := newFixture(t, TCP, "v26.05")
	id, ctx := f.bdev(t), t.Context()
	require.NoError(t, f.CheckHoldsIO(ctx, id), "not exported")
	_, err := f.Admit(ctx, id, multipathHost("n1"))
	require.NoError(t, err)
	require.NoError(t, f.CheckHoldsIO(ctx, id), "not connected")
	require.NoError(t, f.through(connected{f.caller, []string{multipathHost("n1").Multipath}}).CheckHoldsIO(ctx, id))
	err = f.through(connected{f.caller, []string{multipathHost("n1").NQN}}).CheckHoldsIO(ctx, id)
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, multipathHost("n1").NQN)
	require.NoError(t, newFixture(t, ISCSI, "v26.05").CheckHoldsIO(ctx, id), "which the proxy refuses")

	// spdk-csi's export is open to every host: who uses it shows by its connections only.
	open := f.bdev(t)
	require.NoError(t, f.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: NQN(open), AllowAnyHost: new(true)}))
	_, err = f.rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{NQN: NQN(open), Namespace: spdkrpc.NVMfNamespaceParams{BdevName: open}})
	require.NoError(t, err)
	with := f.through(connected{f.caller, []string{host("n9").NQN}})
	_, err = with.Admit(ctx, open, host("n1"))
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorIs(t, with.RemoveUnused(ctx, open), ErrInUse)
	require.ErrorIs(t, with.Withdraw(ctx, open, new(host("n1"))), ErrInUse)
	_, err = f.through(connected{f.caller, []string{host("n1").NQN}}).Admit(ctx, open, host("n1"))
	require.NoError(t, err, "the host itself")
}

// The initiator group of a node goes with its last export.
func TestInitiatorGroups(t *testing.T) {
	f := newFixture(t, ISCSI, "v26.05")
	v, w := f.bdev(t), f.bdev(t)
	for _, id := range []string{v, w} {
		_, err := f.Admit(t.Context(), id, host("n1"))
		require.NoError(t, err)
	}
	groups := func() int {
		all, err := f.rpc.ISCSIGetInitiatorGroups(t.Context())
		require.NoError(t, err)
		return len(all)
	}
	assert.Equal(t, 1, groups(), "one for both; the claim is gone")
	require.NoError(t, f.Withdraw(t.Context(), v, new(host("n1"))))
	assert.Equal(t, 1, groups(), "the other export needs it")
	require.NoError(t, f.Withdraw(t.Context(), w, new(host("n1"))))
	assert.Zero(t, groups())
}

// silent answers, as SPDK may, every question about one subsystem as if its parameters were wrong.
type silent struct{ spdkrpc.Caller }

func (s silent) Call(ctx context.Context, method string, params, result any) error {
	if method == "nvmf_get_subsystems" && params != nil {
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.InvalidParams, Code: -32602, Message: "Invalid parameters"}
	}
	return s.Caller.Call(ctx, method, params, result)
}

// An answer that means "not there" from v26.09 on means nothing on an earlier release.
func TestRefusedQuestion(t *testing.T) {
	for release, err := range map[string]error{"v26.05": spdkrpc.InvalidParams, "v26.09": nil} {
		f := newFixture(t, TCP, release)
		s := f.through(silent{f.caller})
		for range 2 {
			there, got := s.Exists(t.Context(), f.bdev(t))
			require.ErrorIs(t, got, err, release)
			assert.False(t, there)
		}
	}
}
