package volume

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

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

// An export of spdk-csi's is open to every host: who uses it is only seen by its connections.
func TestConnectedHostsFence(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	legacyExport(t, b, v)
	before := b.subsystem(t, v)
	with := func(hosts ...string) *Service {
		return b.Target.Service(spdkrpc.NewClient(connected{b.fault, hosts}))
	}

	other := with(host("n2").NQN)
	_, err := other.Export(t.Context(), v.UUID, host("n1"))
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, host("n2").NQN)
	require.ErrorIs(t, other.Unexport(t.Context(), v.UUID, new(host("n1"))), ErrInUse)
	require.ErrorIs(t, other.Delete(t.Context(), v.UUID), ErrInUse)
	require.ErrorIs(t, with(host("n1").NQN, host("n2").NQN).Unexport(t.Context(), v.UUID, new(host("n1"))), ErrInUse)
	assert.Equal(t, before, b.subsystem(t, v), "nothing was changed")

	own := with(host("n1").NQN)
	_, err = own.Export(t.Context(), v.UUID, host("n1"))
	require.NoError(t, err, "a node that is connected already is taken over")
	require.ErrorIs(t, own.Delete(t.Context(), v.UUID), ErrInUse)
	require.NoError(t, own.Unexport(t.Context(), v.UUID, new(host("n1"))))
	require.NoError(t, own.Delete(t.Context(), v.UUID))
}

// rival admits another host in the moment in which a host is admitted, as another controller would.
type rival struct {
	spdkrpc.Caller
	admit func(ctx context.Context)
}

func (r rival) Call(ctx context.Context, method string, params, result any) error {
	err := r.Caller.Call(ctx, method, params, result)
	if strings.HasSuffix(method, "add_host") && err == nil {
		r.admit(ctx)
	}
	return err
}

func TestTwoControllersAdmitOneHostAtMost(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	b.Service = b.Target.Service(spdkrpc.NewClient(rival{b.fault, func(ctx context.Context) {
		require.NoError(t, b.rpc.NVMfSubsystemAddHost(ctx, spdkrpc.NVMfSubsystemAddHostParams{NQN: export.NQN(v.UUID), Host: host("n2").NQN}))
	}}))
	_, err := b.Export(t.Context(), v.UUID, host("n1"))
	require.ErrorIs(t, err, ErrInUse)
	assert.Equal(t, []spdkrpc.NVMfSubsystemHost{{NQN: host("n2").NQN}}, b.subsystem(t, v).Hosts, "who came second stepped back")
}
