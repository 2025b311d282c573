package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/monitor"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/request"
)

// entries maps the monitor's findings to the values of the CSI health calls. Findings that are not
// in the map are not reported: monitor.Unknown, for example, is not a known problem of the volume.
var entries = map[monitor.Kind]struct {
	status csi.VolumeHealthErrorType
	reason string
}{
	monitor.PathsLost:    {csi.VolumeHealthErrorType_DEGRADED, "PathsLost"},
	monitor.ReadOnly:     {csi.VolumeHealthErrorType_DEGRADED, "FilesystemReadOnly"},
	monitor.Connecting:   {csi.VolumeHealthErrorType_INACCESSIBLE, "TargetUnreachable"},
	monitor.NotConnected: {csi.VolumeHealthErrorType_INACCESSIBLE, "NotConnected"},
	monitor.NoNamespace:  {csi.VolumeHealthErrorType_INACCESSIBLE, "NamespaceMissing"},
	monitor.NotMounted:   {csi.VolumeHealthErrorType_INACCESSIBLE, "NotMounted"},
	monitor.DeadMount:    {csi.VolumeHealthErrorType_INACCESSIBLE, reasonDeviceGone},
	monitor.ShutDown:     {csi.VolumeHealthErrorType_INACCESSIBLE, "FilesystemShutDown"},
	monitor.Hanging:      {csi.VolumeHealthErrorType_INACCESSIBLE, "ReadHangs"},
}

const reasonDeviceGone = "DeviceGone"

// NodeGetVolumeHealth reports the problems that the monitor found when it last checked a volume,
// and whether the device of the mount still exists. It does not access the device or the file
// system.
func (n *Node) NodeGetVolumeHealth(_ context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	id := req.GetVolumeId()
	if id == "" {
		return nil, fmt.Errorf("%w: volume_id is missing", request.ErrInvalid)
	}
	path := req.GetVolumePublishPath()
	if path == "" && req.GetStagingTargetPath() != "" {
		path = stagePath(req.GetStagingTargetPath(), id)
	}
	health := &csi.VolumeHealth{VolumeId: id}
	if path != "" {
		at, err := n.mounter.At(path)
		if err != nil && !errors.Is(err, mount.ErrNotMounted) {
			return nil, err
		}
		if at.Stale {
			report(health, monitor.DeadMount, fmt.Sprintf("the device below %s was removed because its target did not respond for too long: publish the volume again", path))
		}
	}
	n.reportReplicas(health)
	state, _ := n.monitor.State(id)
	for _, f := range state.Findings {
		if f.Kind == monitor.DeadMount && req.GetVolumePublishPath() != "" && f.Path != "" && f.Path != path {
			continue // the caller asked only about another path
		}
		report(health, f.Kind, f.Text)
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health}, nil
}

// report adds an entry for a finding to health. CSI allows one entry for each combination of status
// and reason.
func report(health *csi.VolumeHealth, kind monitor.Kind, text string) {
	e, ok := entries[kind]
	if !ok || slices.ContainsFunc(health.HealthStatuses, func(h *csi.VolumeHealth_VolumeHealthEntry) bool { return h.GetReason() == e.reason }) {
		return
	}
	health.HealthStatuses = append(health.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{Status: e.status, Reason: e.reason, Message: text})
}

// NodeGetStorageHealth reports the targets of volumes that have lost paths on this node. A target
// is unreachable if none of its volumes has a path left. Without a monitor, the call is not
// supported.
func (n *Node) NodeGetStorageHealth(ctx context.Context, req *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	if n.monitor == nil {
		return n.UnimplementedNodeServer.NodeGetStorageHealth(ctx, req)
	}
	type count struct{ volumes, unreachable, degraded int }
	targets := map[string]*count{}
	for _, s := range n.monitor.States() {
		c := targets[s.Volume.Target]
		if c == nil {
			c = &count{}
			targets[s.Volume.Target] = c
		}
		c.volumes++
		switch {
		case s.Has(monitor.Connecting), s.Has(monitor.NotConnected):
			c.unreachable++
		case s.Has(monitor.PathsLost):
			c.degraded++
		}
	}
	var unreachable, degraded []string
	for name, c := range targets {
		switch lost := c.unreachable + c.degraded; {
		case c.unreachable == c.volumes:
			unreachable = append(unreachable, fmt.Sprintf("%s (%d volumes)", name, c.volumes))
		case lost > 0:
			degraded = append(degraded, fmt.Sprintf("%s (%d of %d volumes)", name, lost, c.volumes))
		}
	}
	resp := &csi.NodeGetStorageHealthResponse{}
	add := func(status csi.StorageHealthErrorType, reason, text string, names []string) {
		if len(names) == 0 {
			return
		}
		resp.BackendHealth = append(resp.BackendHealth, &csi.NodeGetStorageHealthResponse_StorageBackendHealth{
			Status: status, Reason: reason, Message: text + firstOf(names),
		})
	}
	add(csi.StorageHealthErrorType_STORAGE_UNREACHABLE, "TargetUnreachable", "no volume of these targets has a path from this node: ", unreachable)
	add(csi.StorageHealthErrorType_STORAGE_DEGRADED, "PathsLost", "volumes of these targets have lost paths from this node: ", degraded)
	return resp, nil
}

// reportReplicas adds the known state of a volume's replicas to health.
func (n *Node) reportReplicas(health *csi.VolumeHealth) {
	if n.healer == nil {
		return
	}
	id, err := request.ParseVolumeID(health.GetVolumeId())
	if err != nil {
		return
	}
	state, ok := n.healer.State(id.UUID)
	add := func(reason, text string) {
		health.HealthStatuses = append(health.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{Status: csi.VolumeHealthErrorType_DEGRADED, Reason: reason, Message: text})
	}
	switch {
	case !ok:
	case state.Regions > 0:
		add("ReplicaRebuilding", fmt.Sprintf("a replica is being rebuilt: %d of %d regions are done; the volume works with the other one", state.Synced, state.Regions))
	case state.Degraded:
		add("ReplicaMissing", "the volume works with one replica: "+state.Problem)
	case state.Problem != "":
		add("ReplicaProblem", state.Problem)
	}
}

// firstOf lists the first names in alphabetical order, and the number of remaining names.
func firstOf(names []string) string {
	const most = 8
	slices.Sort(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}
