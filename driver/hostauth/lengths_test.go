package hostauth

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The hash of a DH-HMAC-CHAP key determines the length of the key.
func TestKeysOfWrongLengthAreRejected(t *testing.T) {
	for hash, lengths := range map[string][]int{"00": {32, 48, 64}, "01": {32}, "02": {48}, "03": {64}} {
		for n := range 70 {
			b := make([]byte, n, n+4)
			b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
			err := checkDHCHAP("key", NewSecret("DHHC-1:"+hash+":"+base64.StdEncoding.EncodeToString(b)+":"))
			fits := false
			for _, l := range lengths {
				fits = fits || l == n
			}
			assert.Equal(t, fits, err == nil, "hash %s, %d bytes", hash, n)
			if err != nil {
				require.ErrorIs(t, err, ErrMalformed)
			}
		}
	}
}
