package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The driver is registered if the CSINode contains its node id and its volume limit, if a limit is
// set.
func TestRegistrationIsReadFromTheCSINode(t *testing.T) {
	limit := func(n *int64) *struct{ Count *int64 } { return &struct{ Count *int64 }{n} }
	d := func(name, id string, allocatable *struct{ Count *int64 }) csiNodeDriver {
		return csiNodeDriver{Name: name, NodeID: id, Allocatable: allocatable}
	}
	for _, c := range []struct {
		most    int64
		drivers []csiNodeDriver
		want    bool
	}{
		{0, nil, false}, {0, []csiNodeDriver{d("other", "n1", nil)}, false}, {0, []csiNodeDriver{d("csi", "n2", nil)}, false},
		{0, []csiNodeDriver{d("csi", "n1", nil)}, true}, {0, []csiNodeDriver{d("other", "x", nil), d("csi", "n1", limit(new(int64(7))))}, true},
		{1, []csiNodeDriver{d("csi", "n1", nil)}, false}, {1, []csiNodeDriver{d("csi", "n1", limit(nil))}, false},
		{1, []csiNodeDriver{d("csi", "n1", limit(new(int64(1))))}, true}, {1, []csiNodeDriver{d("csi", "n1", limit(new(int64(2))))}, false},
	} {
		var n csiNode
		n.Spec.Drivers = c.drivers
		err := StartupTaint{Driver: "csi", NodeID: "n1", MaxVolumes: c.most}.registered(n)
		assert.Equal(t, c.want, err == nil, "%d, %+v: %v", c.most, c.drivers, err)
	}
}

func TestClientRequiresAPod(t *testing.T) {
	for _, server := range [][2]string{{"", ""}, {"192.0.2.1", ""}, {"", "443"}} {
		_, err := New(server[0], server[1], t.TempDir())
		require.ErrorContains(t, err, "does not run in a pod", server)
	}
}
