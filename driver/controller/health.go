package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// ControllerGetVolumeHealth returns the health of a volume as reported by its target.
func (c *Controller) ControllerGetVolumeHealth(ctx context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, fmt.Errorf("%w: volume_id is missing", request.ErrInvalid)
	}
	id, err := request.ParseVolumeID(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	service, err := c.findTarget(ctx, id, req.GetSecrets(), "")
	if err != nil {
		return nil, err
	}
	h, err := service.Health(ctx, id.UUID)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: healthMessage(id.String(), h)}, nil
}

// ControllerListVolumeHealth lists the volumes with known health problems.
func (c *Controller) ControllerListVolumeHealth(ctx context.Context, req *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	entries, next, err := list(ctx, c, req.GetSecrets(), "", req.GetStartingToken(), req.GetMaxEntries(), (*volume.Service).ListHealth)
	if err != nil {
		return nil, err
	}
	resp := &csi.ControllerListVolumeHealthResponse{NextToken: next}
	for _, e := range entries {
		resp.Entries = append(resp.Entries, healthMessage(e.id(e.entry.UUID), e.entry))
	}
	return resp, nil
}

func healthMessage(id string, h volume.Health) *csi.VolumeHealth {
	m := &csi.VolumeHealth{VolumeId: id}
	for _, c := range h.Conditions {
		status := csi.VolumeHealthErrorType_DEGRADED
		if c.Inaccessible {
			status = csi.VolumeHealthErrorType_INACCESSIBLE
		}
		m.HealthStatuses = append(m.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{Status: status, Reason: c.Reason, Message: c.Message})
	}
	return m
}
