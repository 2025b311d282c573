package node

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver"
)

const nodeA = "node-a"

var writer = capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, false)

func capability(mode csi.VolumeCapability_AccessMode_Mode, block bool) *csi.VolumeCapability {
	c := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
	if block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	}
	return c
}

func requireCode(t *testing.T, want codes.Code, err error, text ...string) {
	t.Helper()
	require.Equal(t, want, driver.Code(err), "%v", err)
	for _, x := range text {
		require.Contains(t, status.Convert(driver.Status(err)).Message(), x)
	}
}

// again repeats a call that was told to be repeated.
func again[T any](call func() (T, error)) (T, error) {
	for {
		v, err := call()
		if c := driver.Code(err); c != codes.Aborted && c != codes.Unavailable {
			return v, err
		}
	}
}
