package driver

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/stats"

	"github.com/spdkgate/spdkgate/driver/drivertest"
)

func TestListenReportsUnreadableDirectories(t *testing.T) {
	_, err := Listen("unix://" + filepath.Join(t.TempDir(), strings.Repeat("x", 300), "csi.sock"))
	require.ErrorContains(t, err, "file name too long")
}

func TestConnectionsAndCallsAreCounted(t *testing.T) {
	var c clients
	counts := func() [2]int {
		conns, running, _ := c.state()
		return [2]int{conns, running}
	}
	c.HandleConn(t.Context(), &stats.ConnBegin{})
	assert.Equal(t, [2]int{1, 0}, counts())
	c.HandleRPC(t.Context(), &stats.Begin{})
	assert.Equal(t, [2]int{1, 1}, counts())
	c.HandleRPC(t.Context(), &stats.InPayload{})
	assert.Equal(t, [2]int{1, 1}, counts())
	c.HandleRPC(t.Context(), &stats.End{})
	c.HandleConn(t.Context(), &stats.ConnEnd{})
	assert.Equal(t, [2]int{0, 0}, counts())
}

// A server offers only the services of its own process, and logs a short id for each call.
func TestServerOffersOnlyItsServices(t *testing.T) {
	type groups struct {
		csi.UnimplementedGroupControllerServer
	}
	logs := &drivertest.Log{}
	conn, stop := drivertest.Serve(t, &Server{Identity: &Identity{Name: "x"}, Groups: groups{}, Controller: stubController{deleteVolume: func() error { return errors.New("broken") }}, Log: logs.Logger()})
	_, err := csi.NewGroupControllerClient(conn).GroupControllerGetCapabilities(t.Context(), &csi.GroupControllerGetCapabilitiesRequest{})
	require.ErrorContains(t, err, "method GroupControllerGetCapabilities not implemented", "the service is registered")
	_, err = csi.NewControllerClient(conn).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{})
	require.ErrorContains(t, err, "broken")
	require.NoError(t, stop())
	assert.Regexp(t, `request_id=[0-9a-f]{8}\s`, logs.String())
	assert.NotContains(t, logs.String(), "slow", "a call is slow after 30 s")
}
