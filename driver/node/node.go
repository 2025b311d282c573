package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/monitor"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/request"
)

// Node implements the CSI node service.
type Node struct {
	csi.UnimplementedNodeServer
	id         string
	maxVolumes int64
	topology   map[string]string // labels of the node; nil for none
	connector  connect.Connector
	mounter    Mounter
	encrypter  Encrypter // if nil, the node refuses encrypted volumes
	healer     Healer    // if nil, the node refuses replicated volumes
	used       usedVolumes
	staged     stagedVolumes
	monitor    *monitor.Monitor // nil for no monitoring
	locks      *request.Locks
	log        *slog.Logger
}

// A Mounter mounts file systems and devices. *mount.Mounter implements it.
type Mounter interface {
	FormatAndMount(ctx context.Context, s mount.Stage) error
	Bind(ctx context.Context, source, target string, readOnly bool, flags []string) error
	BindDevice(ctx context.Context, device, target string, readOnly bool) error
	Unmount(ctx context.Context, path string) error
	UnmountAndRemove(ctx context.Context, path string) error
	At(path string) (mount.Point, error)
	Check(ctx context.Context, path string) error
	Grow(ctx context.Context, path string) (sizeBytes int64, err error)
	Stats(ctx context.Context, path string) (mount.Stats, error)
	DeviceSize(ctx context.Context, path string) (int64, error)
}

// New returns the service for the node with this id. maxVolumes is the maximum number of volumes on
// the node; 0 means no limit. stateDir is the absolute path of a directory that persists for the
// lifetime of the node. It records which volumes have been used on the node.
func New(id string, maxVolumes int64, stateDir string, connector connect.Connector, mounter Mounter, log *slog.Logger) (*Node, error) {
	if err := request.CheckNodeID(id); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(stateDir) {
		return nil, fmt.Errorf("%w: the node's state directory is %q: use an absolute path", request.ErrInvalid, stateDir)
	}
	if maxVolumes < 0 {
		return nil, fmt.Errorf("%w: the maximum number of volumes is %d: use 0 or more", request.ErrInvalid, maxVolumes)
	}
	return &Node{
		id: id, maxVolumes: maxVolumes, connector: connector, mounter: mounter,
		used: usedVolumes{filepath.Join(stateDir, "used")}, staged: stagedVolumes{filepath.Join(stateDir, "staged"), bootID()}, locks: request.NewLocks(), log: log,
	}, nil
}

// SetTopology sets the labels that determine which volumes the node can reach, such as its zone. By
// default, a node has no labels. Call SetTopology before the node serves requests. Errors wrap
// [request.ErrInvalid].
func (n *Node) SetTopology(segments map[string]string) error {
	n.topology = segments
	return request.CheckTopology(segments)
}

// NodeGetInfo returns the node's id and topology. The node's NVMe host NQN and iSCSI initiator name
// are derived from the id.
func (n *Node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	resp := &csi.NodeGetInfoResponse{NodeId: n.id, MaxVolumesPerNode: n.maxVolumes}
	if len(n.topology) > 0 {
		resp.AccessibleTopology = &csi.Topology{Segments: n.topology}
	}
	return resp, nil
}

// NodeGetCapabilities lists the capabilities of the node service.
func (n *Node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	resp := &csi.NodeGetCapabilitiesResponse{}
	types := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if n.monitor != nil {
		types = append(types, csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH)
	}
	for _, t := range types {
		resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return resp, nil
}

// NodeGetVolumeStats returns the size of a volume and the usage of its file system.
func (n *Node) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	at, err := n.published(req.GetVolumeId(), req.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if at.Block {
		size, err := n.mounter.DeviceSize(ctx, at.Path)
		if err != nil {
			return nil, err
		}
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: size}}}, nil
	}
	s, err := n.mounter.Stats(ctx, at.Path)
	if err != nil {
		return nil, err
	}
	usage := []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: s.TotalBytes, Available: s.AvailableBytes, Used: s.UsedBytes}}
	if s.TotalInodes > 0 { // btrfs has no fixed number of inodes
		usage = append(usage, &csi.VolumeUsage{Unit: csi.VolumeUsage_INODES, Total: s.TotalInodes, Available: s.FreeInodes, Used: s.UsedInodes})
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: usage}, nil
}

// NodeExpandVolume grows the device, and the file system on it, to the volume's size on its target.
func (n *Node) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	at, err := n.published(req.GetVolumeId(), req.GetVolumePath())
	if err != nil {
		return nil, err
	}
	claim := n.locks.Claim()
	defer claim.Release()
	if err := claim.Take(req.GetVolumeId()); err != nil {
		return nil, err
	}
	device, err := n.rescan(ctx, req)
	if err != nil {
		return nil, err
	}
	if device.encrypted {
		return n.expandEncrypted(ctx, req.GetVolumeId(), at, device.size)
	}
	if at.Block {
		size, err := n.mounter.DeviceSize(ctx, at.Path)
		return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, err
	}
	size, err := n.mounter.Grow(ctx, at.Path)
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, err
}

// A rescanned describes a device after the kernel has reread its size.
type rescanned struct {
	size      int64
	encrypted bool
}

// rescan makes the kernel reread the device's size, although NVMe devices grow even without a
// rescan. If the request contains no staging path, the device is unknown, and rescan does nothing.
func (n *Node) rescan(ctx context.Context, req *csi.NodeExpandVolumeRequest) (rescanned, error) {
	staging := req.GetStagingTargetPath()
	if staging == "" {
		return rescanned{}, nil
	}
	record, ok, err := readRecord(staging, req.GetVolumeId())
	if err != nil || !ok {
		return rescanned{}, err
	}
	if record.replicated() {
		return rescanned{}, fmt.Errorf("%w: volume %s has replicas on two storage servers, and such volumes cannot grow yet. Nothing was changed", request.ErrUnsupported, record.VolumeID)
	}
	size, err := n.connector.Rescan(ctx, record.Export, req.GetCapacityRange().GetRequiredBytes())
	return rescanned{size, record.encrypted()}, err
}

// published returns the mount at a volume's path.
func (n *Node) published(volumeID, path string) (mount.Point, error) {
	switch {
	case volumeID == "":
		return mount.Point{}, fmt.Errorf("%w: volume_id is missing", request.ErrInvalid)
	case path == "":
		return mount.Point{}, fmt.Errorf("%w: volume_path is missing", request.ErrInvalid)
	}
	if !filepath.IsAbs(path) {
		return mount.Point{}, fmt.Errorf("%w: nothing is published at %q: it is not an absolute path", request.ErrNoSuchPath, path)
	}
	if err := checkPaths(volumeID); err != nil {
		return mount.Point{}, err
	}
	at, err := n.mounter.At(path)
	if errors.Is(err, mount.ErrNotMounted) {
		return at, fmt.Errorf("%w: volume %s is not published at %s", request.ErrNoSuchPath, volumeID, path)
	}
	return at, err
}
