package cert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If there are several authorities, LoadClientCAs returns the earliest expiry, in whatever order
// they are listed. It skips PEM blocks other than certificates.
func TestEarliestClientCAExpiryIsReturned(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now().UTC().Truncate(time.Second)
	authority := func(days int) []byte {
		template := &x509.Certificate{SerialNumber: big.NewInt(int64(days)), NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(0, 0, days), IsCA: true, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		require.NoError(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	for _, days := range [][]int{{7}, {30, 7}, {7, 30}, {30, 7, 90}} {
		text := pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte("no certificate")})
		for _, d := range days {
			text = append(text, authority(d)...)
		}
		pool, expire, err := LoadClientCAs("x", func(string) ([]byte, error) { return text, nil })
		require.NoError(t, err)
		assert.NotNil(t, pool)
		assert.Equal(t, now.AddDate(0, 0, 7), expire.UTC(), "%v", days)
	}
}
