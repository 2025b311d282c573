package controller

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/drivertest"
)

// The driver's server converts an error from the controller to a gRPC code, and logs no secrets.
func TestServerConvertsErrorsToCodes(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	b.withCredentials(t)
	logs := &drivertest.Log{}
	conn, stop := drivertest.Serve(t, &driver.Server{Identity: &driver.Identity{}, Controller: b.Controller, Log: logs.Logger()})
	c := csi.NewControllerClient(conn)
	v, err := c.CreateVolume(t.Context(), b.request("pvc-1", 4*mib))
	require.NoError(t, err)
	_, err = c.CreateVolume(t.Context(), b.request("pvc-1", 400*mib))
	assert.Equal(t, codes.AlreadyExists, status.Code(err))
	assert.ErrorContains(t, err, "but 419430400 or more are requested")
	require.NoError(t, stop())
	assert.Contains(t, logs.String(), "method=CreateVolume request_id=")
	assert.Contains(t, logs.String(), "code=AlreadyExists took=")
	assert.Contains(t, logs.String(), v.GetVolume().GetVolumeId()[:3])
	assert.NotContains(t, logs.String(), password)
}
