package driver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/spdkgate/spdkgate/driver/drivertest"
)

// The tools grpc-health-probe and grpcurl work on the CSI socket.
func TestHealthAndReflectionAreServed(t *testing.T) {
	logs := &drivertest.Log{}
	conn, stop := drivertest.Serve(t, &Server{Identity: &Identity{}, Log: logs.Logger()})
	health, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_SERVING, health.GetStatus())

	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}))
	answer, err := stream.Recv()
	require.NoError(t, err)
	var services []string
	for _, s := range answer.GetListServicesResponse().GetService() {
		services = append(services, s.GetName())
	}
	assert.Contains(t, services, "csi.v1.Identity")
	assert.NotContains(t, services, "csi.v1.Node", "this process serves no node")
	require.NoError(t, stream.CloseSend())
	require.NoError(t, stop())
}
