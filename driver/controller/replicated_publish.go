package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/driver/witness"
)

// publishReplicated makes a node the writer of a volume, and exports all reachable replicas to that
// node alone. It changes the witness first. From then on, the previous node can no longer drop a
// replica that it cannot reach, so it cannot acknowledge a write that is missing on that replica.
func (c *Controller) publishReplicated(ctx context.Context, id request.VolumeID, req *csi.ControllerPublishVolumeRequest, host export.Host) (*csi.ControllerPublishVolumeResponse, error) {
	failed := func(err error) (*csi.ControllerPublishVolumeResponse, error) {
		return nil, fmt.Errorf("publish volume %s: %w", id, err)
	}
	if c.witnesses == nil {
		return failed(c.checkReplication())
	}
	made, err := request.ParseReplicated(req.GetVolumeContext()[request.KeyReplicated])
	if err != nil {
		return failed(err)
	}
	record, err := c.witnesses.Get(ctx, id.UUID)
	switch {
	case errors.Is(err, witness.ErrNotFound):
		return failed(fmt.Errorf("%w: %w", volume.ErrNotFound, err))
	case err != nil:
		return failed(witnessError(err))
	case record.Deleting:
		return failed(fmt.Errorf("%w: the volume is being deleted", volume.ErrInUse))
	case record.Witness.Writer.Node != "" && record.Witness.Writer.Node != req.GetNodeId():
		return failed(fmt.Errorf("%w: the volume is published to node %s: unpublish it there first", volume.ErrInUse, record.Witness.Writer.Node))
	}
	sites, err := c.sites(ctx, record, req.GetSecrets(), publishSecret)
	if err != nil {
		return failed(err)
	}
	if err := sameReplicas(sites, made); err != nil {
		return failed(err)
	}
	if request.RawBlock(req.GetVolumeCapability()) {
		for _, s := range sites {
			if err := s.target.CheckRawBlock(ctx); errors.Is(err, volume.ErrLoads) {
				return failed(err)
			}
		}
	}
	host = export.Host{NQN: host.NQN, IQN: host.IQN} // the node's mirror holds back I/O
	if record, err = c.witnesses.Publish(ctx, id.UUID, req.GetNodeId()); err != nil {
		return failed(witnessError(err))
	}
	writer := record.Witness.Writer
	still := func(ctx context.Context) error {
		now, err := c.witnesses.Get(ctx, id.UUID)
		if err == nil && (now.Witness.Writer != writer || now.Deleting || now.UID != record.UID) {
			err = replica.ErrFenced
		}
		return witnessError(err)
	}
	if writer.Node != req.GetNodeId() {
		return failed(replica.ErrFenced)
	}
	forEach(sites, func(s *site) {
		if s.err == nil {
			s.err = s.target.AdmitReplica(ctx, s.replica, writer.Generation, host, still)
		}
	})
	if err := c.enough(ctx, record.Witness, sites); err != nil {
		return failed(err)
	}
	pristine, err := pristineReplicas(ctx, record.Witness, sites)
	if err != nil {
		return failed(err)
	}
	r := request.Replicated{UID: record.UID, Generation: writer.Generation, SizeBytes: made.SizeBytes}
	for i, s := range sites {
		x := made.Replicas[i]
		x.Export = exportContext(s.config, volume.Volume{UUID: x.UUID, SizeBytes: made.SizeBytes})
		x.Export[connect.KeyNQN] = export.ReplicaNQN(x.UUID, writer.Generation)
		delete(x.Export, connect.KeyLvolSize)
		if len(s.config.Addresses) > 0 {
			x.Export[connect.KeyTargetAddrs] = connect.FormatAddresses(addresses(s.config))
		}
		r.Replicas = append(r.Replicas, x)
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{
		request.KeyReplicated: r.Format(), request.KeyMayFormat: strconv.FormatBool(mayFormat(pristine, true, req.GetVolumeContext())),
	}}, nil
}

// sameReplicas fails unless the sites contain the replicas that the volume was created with.
// Another lvol with the same name may have replaced a replica.
func sameReplicas(sites []*site, made request.Replicated) error {
	for i, s := range sites {
		switch x := made.Replicas[i]; {
		case x.Number != int(s.id) || x.Server != s.place.Server:
			return fmt.Errorf("%w: the volume context names replica %d on server %s, but the witness names replica %d on %s", volume.ErrIncompatible, x.Number, x.Server, s.id, s.place.Server)
		case s.err == nil && s.replica.UUID != x.UUID:
			return fmt.Errorf("%w: %s on server %s has the UUID %s, but the volume was created with %s: the replica was replaced. Nothing was changed", volume.ErrIncompatible, s.place.Lvol, s.place.Server, s.replica.UUID, x.UUID)
		}
	}
	return nil
}

// enough fails unless the sites without an error have everything that a node needs to start: one
// in-sync replica, or all replicas of an unused volume. It always returns a site's error that a
// retry cannot resolve.
func (c *Controller) enough(ctx context.Context, w replica.Witness, sites []*site) error {
	var reached replica.Set
	for _, s := range sites {
		if s.err == nil {
			reached |= replica.SetOf(s.id)
			continue
		}
		for _, lasting := range []error{replica.ErrFenced, export.ErrFenced, export.ErrForeign, export.ErrNotReplicable} {
			if errors.Is(s.err, lasting) {
				return s.err
			}
		}
	}
	servers, err := failures(sites)
	if w.Created && reached&w.InSync != 0 || !w.Created && reached == w.Replicas {
		if err != nil {
			c.log.WarnContext(ctx, "a replica cannot be reached: the volume is used without it until it is back", "server", servers, "error", err)
		}
		return nil
	}
	if w.Created {
		return fmt.Errorf("%w: no current replica can be reached: the replica on %s is needed: %w", request.ErrNoReplica, servers, err)
	}
	return fmt.Errorf("%w: the volume is new, and its first use needs both replicas: the replica on %s cannot be reached: %w", request.ErrNoReplica, servers, err)
}

// pristineReplicas reports whether a volume has definitely never been written to.
func pristineReplicas(ctx context.Context, w replica.Witness, sites []*site) (bool, error) {
	if !w.Created {
		return true, nil
	}
	for _, s := range sites {
		if s.err != nil {
			return false, nil
		}
		only, err := s.target.HasOnlyHead(ctx, s.replica, replica.HeadBytes)
		if err != nil || !only {
			return false, err
		}
	}
	return true, nil
}

// unpublishReplicated ends the publication of a volume to a node, or to any node if node is empty.
// It changes the witness first.
func (c *Controller) unpublishReplicated(ctx context.Context, id request.VolumeID, node string, secrets map[string]string) error {
	failed := func(err error) error { return fmt.Errorf("unpublish volume %s: %w", id, err) }
	if c.witnesses == nil {
		return failed(c.checkReplication())
	}
	record, err := c.witnesses.Get(ctx, id.UUID)
	switch {
	case errors.Is(err, witness.ErrNotFound):
		return nil
	case err != nil:
		return failed(witnessError(err))
	case node != "" && record.Witness.Writer.Node != "" && record.Witness.Writer.Node != node:
		return nil // a later publication has ended this one
	}
	sites, err := c.sites(ctx, record, secrets, publishSecret)
	if err != nil {
		return failed(err)
	}
	if record, err = c.witnesses.Publish(ctx, id.UUID, ""); err != nil {
		return failed(witnessError(err))
	}
	var ended replica.Set
	withdraw(ctx, sites)
	for _, s := range sites {
		if s.err == nil {
			ended |= replica.SetOf(s.id)
		}
	}
	servers, unreached := failures(sites)
	if record.Witness.Created && ended&record.Witness.InSync == 0 || ended == 0 {
		return failed(fmt.Errorf("%w: no server with a current replica confirms that the node can no longer use the volume: the replica on %s is needed: %w", request.ErrNoReplica, servers, unreached))
	}
	if unreached != nil {
		c.log.WarnContext(ctx, "a replica is still exported to a node that is no longer the writer: the next publication will withdraw the export", "server", servers, "error", unreached)
	}
	return nil
}

// withdraw ends the exports of all replicas. A site without an error exports nothing to any node.
func withdraw(ctx context.Context, sites []*site) {
	forEach(sites, func(s *site) {
		if s.err == nil {
			s.err = s.target.WithdrawReplica(ctx, s.replica)
		}
		if errors.Is(s.err, volume.ErrNotFound) { // deleted, with its exports
			s.err = nil
		}
	})
}
