package web

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/gate"
)

// The number of streams is limited per user and in total.
func TestNumberOfStreamsIsLimited(t *testing.T) {
	var o streams
	for range maxStreams / MaxStreamsPerUser {
		for range MaxStreamsPerUser {
			_, err := o.open(gate.NewID())
			require.NoError(t, err)
		}
	}
	_, err := o.open("another")
	assert.ErrorIs(t, err, gate.ErrStreams)
}
