package volume

import (
	"context"
	"encoding/base64"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// The error contains the reason why the changes are unknown, even if the target did not return the
// error.
func TestUnavailableChangesReportTheReason(t *testing.T) {
	require.Equal(t, context.Canceled, noChanges(context.Canceled))
	require.ErrorIs(t, noChanges(&spdkrpc.Error{Kind: spdkrpc.NoSuchDevice}), ErrNotFound)
	require.ErrorIs(t, noChanges(&spdkrpc.Error{Kind: spdkrpc.MethodNotFound}), ErrNoChanges)
}

// A response is rejected if its size, cluster size and bitmap contradict each other.
func TestInconsistentBitmapIsRejected(t *testing.T) {
	bits := func(b ...byte) string { return base64.StdEncoding.EncodeToString(b) }
	const size = 36 // nine clusters of four bytes
	consistent := spdkrpc.ProxyLvolChanges{Bitmap: bits(0x81, 1), ClusterSize: 4, Size: size}
	got, err := bitmapOf(consistent, size)
	require.NoError(t, err)
	require.Equal(t, []byte{0x81, 1}, got)
	c := Changes{SizeBytes: size, ClusterSize: 4, bitmap: got}
	for i := range int64(9) {
		require.Equal(t, i == 0 || i == 7 || i == 8, c.Has(i), "cluster %d", i)
	}
	for name, r := range map[string]spdkrpc.ProxyLvolChanges{
		"not base64":               {Bitmap: "!", ClusterSize: 4, Size: size},
		"partly base64":            {Bitmap: consistent.Bitmap + "!", ClusterSize: 4, Size: size},
		"no cluster size":          {Bitmap: consistent.Bitmap, Size: size},
		"excessive cluster size":   {Bitmap: bits(), ClusterSize: math.MaxUint64, Size: size},
		"not a whole cluster":      {Bitmap: bits(0x81), ClusterSize: 5, Size: size},
		"bitmap too short":         {Bitmap: bits(0x81), ClusterSize: 4, Size: size},
		"bitmap too long":          {Bitmap: bits(0x81, 1, 0), ClusterSize: 4, Size: size},
		"size of another snapshot": {Bitmap: consistent.Bitmap, ClusterSize: 4, Size: size + 4},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bitmapOf(r, size)
			require.ErrorIs(t, err, ErrNoChanges)
		})
	}
	_, err = bitmapOf(spdkrpc.ProxyLvolChanges{ClusterSize: 4}, 0)
	require.NoError(t, err, "a volume without clusters")
}
