package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// The methods below forward each call to the [Controller] with the current configuration.
// TestReloadingForwardsEveryCall checks that no method is missing.

func (r *Reloading) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	return r.current.Load().ControllerExpandVolume(ctx, req)
}

func (r *Reloading) ControllerGetCapabilities(ctx context.Context, req *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return r.current.Load().ControllerGetCapabilities(ctx, req)
}

func (r *Reloading) ControllerGetVolume(ctx context.Context, req *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	return r.current.Load().ControllerGetVolume(ctx, req)
}

func (r *Reloading) ControllerGetVolumeHealth(ctx context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	return r.current.Load().ControllerGetVolumeHealth(ctx, req)
}

func (r *Reloading) ControllerListVolumeHealth(ctx context.Context, req *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	return r.current.Load().ControllerListVolumeHealth(ctx, req)
}

func (r *Reloading) ControllerModifyVolume(ctx context.Context, req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	return r.current.Load().ControllerModifyVolume(ctx, req)
}

func (r *Reloading) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return r.current.Load().ControllerPublishVolume(ctx, req)
}

func (r *Reloading) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return r.current.Load().ControllerUnpublishVolume(ctx, req)
}

func (r *Reloading) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	return r.current.Load().CreateSnapshot(ctx, req)
}

func (r *Reloading) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	return r.current.Load().CreateVolume(ctx, req)
}

func (r *Reloading) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	return r.current.Load().DeleteSnapshot(ctx, req)
}

func (r *Reloading) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return r.current.Load().DeleteVolume(ctx, req)
}

func (r *Reloading) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	return r.current.Load().GetCapacity(ctx, req)
}

func (r *Reloading) GetMetadataAllocated(req *csi.GetMetadataAllocatedRequest, stream csi.SnapshotMetadata_GetMetadataAllocatedServer) error {
	return r.current.Load().GetMetadataAllocated(req, stream)
}

func (r *Reloading) GetMetadataDelta(req *csi.GetMetadataDeltaRequest, stream csi.SnapshotMetadata_GetMetadataDeltaServer) error {
	return r.current.Load().GetMetadataDelta(req, stream)
}

func (r *Reloading) GetSnapshot(ctx context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	return r.current.Load().GetSnapshot(ctx, req)
}

func (r *Reloading) ListSnapshots(ctx context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	return r.current.Load().ListSnapshots(ctx, req)
}

func (r *Reloading) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	return r.current.Load().ListVolumes(ctx, req)
}

func (r *Reloading) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return r.current.Load().ValidateVolumeCapabilities(ctx, req)
}

func (r *Reloading) CreateVolumeGroupSnapshot(ctx context.Context, req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	return r.current.Load().CreateVolumeGroupSnapshot(ctx, req)
}

func (r *Reloading) DeleteVolumeGroupSnapshot(ctx context.Context, req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	return r.current.Load().DeleteVolumeGroupSnapshot(ctx, req)
}

func (r *Reloading) GetVolumeGroupSnapshot(ctx context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	return r.current.Load().GetVolumeGroupSnapshot(ctx, req)
}

func (r *Reloading) GroupControllerGetCapabilities(ctx context.Context, req *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return r.current.Load().GroupControllerGetCapabilities(ctx, req)
}
