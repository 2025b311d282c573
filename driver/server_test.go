package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestEndpointsAreParsed(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:///csi/csi.sock": "/csi/csi.sock", "unix://csi/csi.sock": "/csi/csi.sock", "unix:/csi/csi.sock": "/csi/csi.sock", "/csi/csi.sock": "/csi/csi.sock", "UNIX:///x": "/x",
		"tcp://127.0.0.1:1": "", "csi.sock": "", "unix://": "", "unix:///": "", "unix:///csi/": "", "": "",
	} {
		got, err := SocketPath(endpoint)
		assert.Equal(t, want, got, endpoint)
		assert.Equal(t, want == "", err != nil, endpoint)
	}
}

func TestListenReplacesStaleSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "csi.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	_, err = Listen("unix://" + path)
	require.ErrorContains(t, err, "another process")
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	again, err := Listen("unix://" + path)
	require.NoError(t, err, "the socket of a dead process is replaced")
	require.NoError(t, again.Close())
	require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))
	_, err = Listen("unix://" + path)
	require.ErrorContains(t, err, "not a socket")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(text))
	_, err = Listen("tcp://127.0.0.1:1")
	require.ErrorContains(t, err, "UNIX socket")
	_, err = Listen(path + "/csi.sock")
	require.ErrorContains(t, err, "not a directory")
}

// A stubController is a controller. Its method DeleteVolume returns the result of a function.
type stubController struct {
	csi.UnimplementedControllerServer
	deleteVolume func() error
}

func (s stubController) DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, s.deleteVolume()
}

func TestServerReturnsGRPCCodesAndLogsCalls(t *testing.T) {
	var failure error
	logs := &drivertest.Log{}
	conn, stop := drivertest.Serve(t, &Server{
		Identity: &Identity{Name: DefaultName, Version: "v1"}, Controller: stubController{deleteVolume: func() error { return failure }}, Log: logs.Logger(),
	})
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	require.NoError(t, err)
	assert.Equal(t, "csi.spdk.io", info.GetName())
	capabilities, err := csi.NewIdentityClient(conn).GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{})
	require.NoError(t, err)
	assert.Len(t, capabilities.GetCapabilities(), 4)
	probe, err := csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{})
	require.NoError(t, err)
	assert.True(t, probe.GetReady().GetValue())
	_, err = csi.NewNodeClient(conn).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	assert.Equal(t, codes.Unimplemented, status.Code(err), "the server has no node service")
	c := csi.NewControllerClient(conn)
	_, err = c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "t0:x"})
	require.NoError(t, err)
	failure = volume.ErrInUse
	_, err = c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "t0:y"})
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.NoError(t, stop())
	assert.Contains(t, logs.String(), "method=DeleteVolume request_id=")
	assert.Contains(t, logs.String(), "volume=t0:y error=\"in use\" code=FailedPrecondition took=")
}

func TestServerSurvivesPanics(t *testing.T) {
	var none *Identity
	logs := &drivertest.Log{}
	conn, stop := drivertest.Serve(t, &Server{Identity: &Identity{}, Controller: stubController{deleteVolume: func() error { return errors.New(none.Name) }}, Log: logs.Logger()})
	for range 2 {
		_, err := csi.NewControllerClient(conn).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "t0:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"})
		require.Equal(t, codes.Internal, status.Code(err))
		assert.ErrorContains(t, err, "see its log")
	}
	require.NoError(t, stop())
	assert.Contains(t, logs.String(), "nil pointer")
}

// Frequent read-only queries are logged only at level debug.
func TestFrequentQueriesAreLoggedAtDebug(t *testing.T) {
	for method, query := range map[string]bool{
		"/csi.v1.Node/NodeGetVolumeStats": true, "/csi.v1.Node/NodeGetInfo": true, "/csi.v1.Controller/ListVolumes": true, "/csi.v1.Controller/GetCapacity": true, "/csi.v1.Identity/Probe": true,
		"/csi.v1.Controller/CreateVolume": false, "/csi.v1.Controller/DeleteSnapshot": false, "/csi.v1.Node/NodeStageVolume": false, "/csi.v1.Node/NodeUnpublishVolume": false,
	} {
		assert.Equal(t, query, isQuery(method), method)
	}
}

func TestDrainWaitsForSlowCalls(t *testing.T) {
	hang := make(chan struct{})
	entered := make(chan struct{}, 1)
	logs := &drivertest.Log{}
	slow := &calls{log: logs.Logger(), slowAfter: time.Millisecond}
	done := make(chan error, 1)
	go func() {
		_, err := slow.intercept(t.Context(), &csi.CreateVolumeRequest{Name: "x"}, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Controller/CreateVolume"}, func(context.Context, any) (any, error) {
			entered <- struct{}{}
			<-hang
			return nil, nil
		})
		done <- err
	}()
	<-entered
	require.Eventually(t, func() bool { return strings.Contains(logs.String(), "call is slow") }, time.Minute, time.Millisecond)
	close(hang)
	require.NoError(t, <-done)
	assert.Contains(t, logs.String(), "name=x")
}

func TestErrorsMapToGRPCCodes(t *testing.T) {
	rpc := func(kind spdkrpc.Kind, number int) error {
		return fmt.Errorf("target t0: x: %w", &spdkrpc.Error{Method: "m", Kind: kind, Code: number})
	}
	for want, errs := range map[codes.Code][]error{
		codes.OK:                 {nil},
		codes.InvalidArgument:    {request.ErrInvalid, request.ErrUnsupported, request.ErrCredentials, class.ErrParameter, volume.ErrWrongKind, connect.ErrInvalidExport, mount.ErrInvalid},
		codes.NotFound:           {request.ErrNoSuchID, request.ErrNoSuchPath, volume.ErrNotFound, fmt.Errorf("%w: %w", request.ErrNoSuchID, volume.ErrWrongKind)},
		codes.AlreadyExists:      {volume.ErrIncompatible, request.ErrConflict, mount.ErrConflict},
		codes.ResourceExhausted:  {volume.ErrNoSpace, errors.Join(volume.ErrOutOfRange, volume.ErrNoSpace), rpc(spdkrpc.NoSpace, -28)},
		codes.OutOfRange:         {volume.ErrOutOfRange},
		codes.FailedPrecondition: {volume.ErrInUse, export.ErrForeign, volume.ErrStoreForbidden, request.ErrUnknownTarget, request.ErrNoCredentials, request.ErrElsewhere, request.ErrNotStaged, mount.ErrHoldsData, mount.ErrEmptyDevice, connect.ErrRefused, connect.ErrNoSubsystem, rpc(spdkrpc.MethodNotFound, -32601)},
		codes.Aborted:            {request.ErrLeftBehind, fmt.Errorf("%w (%w)", request.ErrConflict, request.ErrLeftBehind), request.ErrInFlight, request.ErrBadToken, volume.ErrBusy, mount.ErrBusy, connect.ErrBusy, rpc(spdkrpc.OutcomeUnknown, 0), rpc(spdkrpc.Busy, -16)},
		codes.Unavailable:        {volume.ErrStoreMissing, volume.ErrDropped, connect.ErrUnreachable, mirror.ErrUnreachable, mount.ErrUnreadable, mount.ErrBroken, rpc(spdkrpc.Unreachable, 0), rpc(spdkrpc.WrongState, -1)},
		codes.PermissionDenied:   {rpc(spdkrpc.Denied, jsonrpc.CodeForbidden), rpc(spdkrpc.Denied, 0)},
		codes.Unauthenticated:    {rpc(spdkrpc.Denied, jsonrpc.CodeUnauthorized), rpc(spdkrpc.Unreachable, jsonrpc.CodeTooManyLogins)},
		codes.DeadlineExceeded:   {context.DeadlineExceeded, connect.ErrTimeout},
		codes.Canceled:           {context.Canceled},
		codes.Internal:           {errors.New("surprise"), rpc(spdkrpc.Failed, -32603), rpc(spdkrpc.InvalidParams, -32602)},
		codes.Unimplemented:      {status.Error(codes.Unimplemented, "x")},
	} {
		for _, err := range errs {
			assert.Equal(t, want, status.Code(Status(err)), "%v", err)
			if err != nil {
				assert.Equal(t, want, Code(fmt.Errorf("more: %w", err)), "%v", err)
			}
		}
	}
	assert.ErrorContains(t, Status(rpc(spdkrpc.Denied, 0)), "rpcTokens")
	for kind, code := range map[spdkrpc.Kind]int{spdkrpc.Denied: jsonrpc.CodeUnauthorized, spdkrpc.Unreachable: jsonrpc.CodeTooManyLogins} {
		assert.ErrorContains(t, Status(rpc(kind, code)), "the proxy refused the name and password, or the token, of the target's entry in rpcTokens of secret.json: correct it")
	}
	assert.ErrorContains(t, Status(rpc(spdkrpc.Unreachable, 0)), "rpcURL")
	assert.NotContains(t, Status(rpc(spdkrpc.Unreachable, jsonrpc.CodeTooMany)).Error(), "rpcURL")
}
