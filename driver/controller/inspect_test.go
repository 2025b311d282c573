package controller

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// If a move has locked a volume, Inspect reports the copy that the move is making, over both
// transports. A lock without listeners is still a lock.
func TestInspectReportsTheCopyOfAMove(t *testing.T) {
	for _, transport := range []string{"nvme-tcp", "iscsi"} {
		t.Run(transport, func(t *testing.T) {
			target := newSimTarget(t, "t0", "lvs0")
			b := newTestControllerWith(t, transport, target)
			b.withCredentials(t)
			v := b.create(t, "pvc-1", 4*mib)
			id, err := request.ParseVolumeID(v.GetVolumeId())
			require.NoError(t, err)
			copied := uuid.NewString()
			mover := hostname.MoveNode(id.UUID, copied)
			check := func(node string, want inventory.Inspected) {
				t.Helper()
				is, err := b.Inspect(t.Context(), id, node)
				require.NoError(t, err)
				want.SizeBytes = 4 * mib
				assert.Equal(t, want, is)
			}
			withdraw := func(node string) {
				_, err := b.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: node})
				require.NoError(t, err)
			}
			check(mover, inventory.Inspected{})
			_, err = b.publish(t.Context(), v, mover)
			require.NoError(t, err)
			_, err = b.publish(t.Context(), v, nodeA)
			require.ErrorIs(t, err, export.ErrInUse)
			check(mover, inventory.Inspected{CopyUUID: copied, Published: true})
			check(nodeA, inventory.Inspected{CopyUUID: copied})
			if transport == "nvme-tcp" {
				nqn := export.NQN(id.UUID)
				subs, err := target.rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{NQN: &nqn})
				require.NoError(t, err)
				for _, at := range subs[0].ListenAddresses {
					require.NoError(t, target.rpc.NVMfSubsystemRemoveListener(t.Context(), spdkrpc.NVMfSubsystemRemoveListenerParams{NQN: nqn, ListenAddress: spdkrpc.NVMfListenAddress{Trtype: at.Trtype, Traddr: at.Traddr, Trsvcid: &at.Trsvcid}}))
				}
				check(nodeA, inventory.Inspected{CopyUUID: copied})
				h := hostname.Of(mover)
				for _, name := range []string{h.NQN, h.Multipath().NQN} { // an interrupted call can leave only one of the names
					require.NoError(t, target.rpc.NVMfSubsystemRemoveHost(t.Context(), spdkrpc.NVMfSubsystemRemoveHostParams{NQN: nqn, Host: name}))
					check(mover, inventory.Inspected{CopyUUID: copied, Published: true})
					check(nodeA, inventory.Inspected{CopyUUID: copied})
					require.NoError(t, target.rpc.NVMfSubsystemAddHost(t.Context(), spdkrpc.NVMfSubsystemAddHostParams{NQN: nqn, Host: name}))
				}
			}
			withdraw(mover)
			check(mover, inventory.Inspected{})

			// The host is a node, or the move that is making this volume.
			for _, node := range []string{nodeA, hostname.MoveNode(uuid.NewString(), id.UUID)} {
				_, err = b.publish(t.Context(), v, node)
				require.NoError(t, err)
				check(node, inventory.Inspected{Published: true})
				check(mover, inventory.Inspected{Others: true})
				withdraw(node)
			}
		})
	}
}
