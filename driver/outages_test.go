package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/outage"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A shift makes calls to a service at times set by its own clock.
type shift struct {
	calls
	logs  drivertest.Log
	clock time.Time
}

func newShift() *shift {
	s := &shift{clock: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)}
	s.calls = calls{log: s.logs.Logger(), slowAfter: time.Hour}
	s.outages = outage.New(s.log, func() time.Time { return s.clock })
	return s
}

func (s *shift) call(t *testing.T, method string, req any, err error) {
	t.Helper()
	_, got := s.intercept(t.Context(), req, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Controller/" + method}, func(context.Context, any) (any, error) { return nil, err })
	assert.Equal(t, err == nil, got == nil)
}

// lines returns the number of log lines that contain all of these texts, excluding debug lines.
func (s *shift) lines(texts ...string) (n int) {
	for line := range strings.Lines(s.logs.String()) {
		has := !strings.Contains(line, "level=DEBUG")
		for _, text := range texts {
			has = has && strings.Contains(line, text)
		}
		if has {
			n++
		}
	}
	return n
}

func down(target string) error {
	return fmt.Errorf("target %s: list lvstores: %w", target, &request.TargetError{Target: target, Lost: true, Cause: "unreachable: connection refused (" + target + ")", Err: &spdkrpc.Error{Method: "bdev_lvol_get_lvstores", Kind: spdkrpc.Unreachable}})
}

const anyUUID = "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"

// An outage of 90 s with 870 failed calls causes only a few log lines. Failures with another cause
// are still logged.
func TestOutageCausesFewLogLines(t *testing.T) {
	s := newShift()
	n := 0
	for range 87 {
		for range 4 {
			n++
			s.call(t, "CreateVolume", &csi.CreateVolumeRequest{Name: fmt.Sprintf("pvc-%d", n)}, down("t0"))
			s.call(t, "ControllerPublishVolume", &csi.ControllerPublishVolumeRequest{VolumeId: "t0:" + anyUUID}, down("t0"))
		}
		s.call(t, "DeleteVolume", &csi.DeleteVolumeRequest{VolumeId: "t0:" + anyUUID}, fmt.Errorf("volume: %w", request.ErrInFlight))
		s.call(t, "ListVolumes", &csi.ListVolumesRequest{}, down("t0"))
		s.clock = s.clock.Add(time.Second)
	}
	assert.Equal(t, 2, s.lines(), s.logs.String())
	assert.Equal(t, 1, s.lines("call ended", "method=CreateVolume", "name=pvc-1 ", "target t0: list lvstores: bdev_lvol_get_lvstores: unreachable", "rpcURL"))
	assert.Equal(t, 1, s.lines("calls still fail", "target=t0", "kind=unreachable", "failures=271"))

	s.call(t, "DeleteVolume", &csi.DeleteVolumeRequest{VolumeId: "t0:" + anyUUID}, volume.ErrInUse)
	s.call(t, "DeleteVolume", &csi.DeleteVolumeRequest{VolumeId: "t0:" + anyUUID}, volume.ErrInUse)
	assert.Equal(t, 2, s.lines("method=DeleteVolume", "in use"), "another cause")
	s.call(t, "CreateVolume", &csi.CreateVolumeRequest{Name: "pvc-1"}, down("t1"))
	assert.Equal(t, 1, s.lines("call ended", "target t1"), "another target")
	refused := &request.TargetError{Target: "t0", Cause: "credentials refused", Err: &spdkrpc.Error{Kind: spdkrpc.Denied, Code: jsonrpc.CodeUnauthorized}}
	s.call(t, "CreateVolume", &csi.CreateVolumeRequest{Name: "pvc-1"}, refused)
	s.call(t, "CreateVolume", &csi.CreateVolumeRequest{Name: "pvc-1"}, refused)
	assert.Equal(t, 1, s.lines("call ended", "rpcTokens"), "another kind")
	limited := &request.TargetError{Target: "t0", Err: &spdkrpc.Error{Kind: spdkrpc.Unreachable, Code: jsonrpc.CodeTooMany}}
	s.call(t, "CreateVolume", &csi.CreateVolumeRequest{Name: "pvc-1"}, limited)
	s.call(t, "CreateVolume", &csi.CreateVolumeRequest{Name: "pvc-1"}, limited)
	assert.Equal(t, 2, s.lines("call ended", "limit reached"), "the target answers")

	s.call(t, "ControllerPublishVolume", &csi.ControllerPublishVolumeRequest{VolumeId: "t0:" + anyUUID}, nil)
	assert.Equal(t, 1, s.lines("storage server reachable again", "target=t0", "failures=783"), s.logs.String())
	s.outages.Answered("t0")
	s.call(t, "DeleteVolume", &csi.DeleteVolumeRequest{VolumeId: "t0:" + anyUUID}, request.ErrInFlight)
	assert.Equal(t, 1, s.lines("method=DeleteVolume", "another call is in progress"), "no outage explains it")
}

// On a node, an outage is counted for the storage server in the volume's id.
func TestOutageIsCountedOnANode(t *testing.T) {
	s := newShift()
	for range 50 {
		s.call(t, "NodeStageVolume", &csi.NodeStageVolumeRequest{VolumeId: "t0:" + anyUUID}, fmt.Errorf("%w: dial", connect.ErrUnreachable))
		s.call(t, "NodeGetVolumeStats", &csi.NodeGetVolumeStatsRequest{VolumeId: "t0:" + anyUUID}, context.DeadlineExceeded)
		s.call(t, "NodeUnpublishVolume", &csi.NodeUnpublishVolumeRequest{VolumeId: "t0:" + anyUUID}, nil)
	}
	assert.Equal(t, 2, s.lines("level=WARN"), "one line for each kind: %s", s.logs.String())
	s.call(t, "NodeStageVolume", &csi.NodeStageVolumeRequest{VolumeId: "t1:" + anyUUID}, connect.ErrUnreachable)
	assert.Equal(t, 3, s.lines("level=WARN"))
	assert.Zero(t, s.lines("reachable again"))
	s.call(t, "NodeStageVolume", &csi.NodeStageVolumeRequest{VolumeId: "t0:" + anyUUID}, nil)
	assert.Equal(t, 1, s.lines("reachable again", "target=t0", "failures=50"))
}

// If a call fails because a target is down, the text of its event contains only the target and the
// cause. If another error determines the call's gRPC code, the text contains that error.
func TestEventNamesTargetAndCause(t *testing.T) {
	const want = "target t0: unreachable: connection refused (t0): check that the target's rpcURL is right, and that the proxy and spdk_tgt run there"
	assert.ErrorContains(t, Status(down("t0")), "desc = "+want)
	lost := &request.TargetError{Target: "t0", Lost: true, Cause: "unreachable: connection refused (t0)", Err: &spdkrpc.Error{Kind: spdkrpc.OutcomeUnknown}}
	assert.Equal(t, Status(down("t0")).Error(), Status(fmt.Errorf("create volume: %w", lost)).Error(), "whether the call was sent makes no difference")
	assert.Equal(t, Status(down("t0")).Error(), Status(errors.Join(down("t0"), lost)).Error())
	assert.ErrorContains(t, Status(errors.Join(down("t0"), volume.ErrInUse)), "in use")
	assert.ErrorContains(t, Status(errors.Join(request.ErrLeftBehind, down("t0"))), "still connected")
}
