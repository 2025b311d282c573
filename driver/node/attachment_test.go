package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/request"
)

// A volume is formatted only if one context allows formatting and no context forbids it.
func TestFormattingRequiresPermission(t *testing.T) {
	for name, c := range map[string]struct {
		volume, published string
		want              bool
	}{
		"never written":                        {"true", "true", true},
		"written":                              {"true", "false", false},
		"a copy":                               {"false", "false", false},
		"a copy that was never written":        {"false", "true", false},
		"spdk-csi's, never written":            {"", "true", true},
		"spdk-csi's, written":                  {"", "false", false},
		"published by hand":                    {"", "", false},
		"published by hand, and the PV allows": {"true", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			context := func(mayFormat string) map[string]string {
				m := map[string]string{"targetType": "tcp", "targetAddr": "h", "targetPort": "1", "nqn": export.NQN(lvolUUID)}
				if mayFormat != "" {
					m[request.KeyMayFormat] = mayFormat
				}
				return m
			}
			a, err := readAttachment("t0:x", nodeA, context(c.volume), context(c.published), nil)
			require.NoError(t, err)
			assert.Equal(t, c.want, a.mayFormat)
			assert.Equal(t, c.volume == "true", a.mayFinish)
		})
	}
	_, err := readAttachment("t0:x", nodeA, nil, nil, nil)
	require.ErrorIs(t, err, connect.ErrInvalidExport)
	byHand := map[string]string{"targetType": "TCP", "targetAddr": "192.0.2.7", "targetPort": "4420", "nqn": export.NQN(lvolUUID), "model": lvolUUID}
	a, err := readAttachment("t0:x", nodeA, byHand, nil, nil)
	require.NoError(t, err)
	assert.False(t, a.mayFormat, "the volume may hold data")
}
