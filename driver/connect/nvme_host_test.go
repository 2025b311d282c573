package connect

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A node connects with its multipath host NQN if its kernel has native multipath and the export
// admits that NQN.
func TestNVMeHostNameDependsOnMultipath(t *testing.T) {
	for _, tt := range []struct {
		kernel  string
		export  bool
		differs bool
	}{{"Y", true, true}, {"N", true, false}, {"", true, false}, {"Y", false, false}} {
		k, c := newNVMeKernel(t, tt.kernel == "Y")
		if tt.kernel != "" {
			k.file("sys/module/nvme_core/parameters/multipath", tt.kernel+"\n")
		}
		e, want := export1, k.host
		e.Multipath = tt.export
		if tt.differs {
			want = k.host.Multipath()
		}
		k.exchange = func(string) error {
			k.controller(0, 0, nqn1, want.NQN, "live", "127.0.0.1")
			k.namespace(0, 0, 1, "uuid."+uuid1, gib)
			return nil
		}
		_, err := c.Connect(t.Context(), e)
		require.NoError(t, err)
		assert.Equal(t, []string{"fabrics=" + fabricsOptions(e, "127.0.0.1", want, NVMeOptions{})}, k.log(), "%+v", tt)
		e.Multipath = !tt.export // later calls must find the device regardless of this value
		_, err = c.Find(t.Context(), e)
		require.NoError(t, err)
		require.NoError(t, c.Disconnect(t.Context(), e))
	}
}
