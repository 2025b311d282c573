package driver

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// If the configured authority did not issue the proxy's certificate, the error tells the user to
// check caFile.
func TestUntrustedCertificateErrorNamesCAFile(t *testing.T) {
	proxy := httptest.NewTLSServer(http.NotFoundHandler())
	defer proxy.Close()
	h, err := spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{URL: proxy.URL, CA: x509.NewCertPool()})
	require.NoError(t, err)
	_, err = spdkrpc.NewClient(h).SpdkGetVersion(t.Context())
	require.Error(t, err)
	assert.Equal(t, codes.Unavailable, Code(err))
	assert.ErrorContains(t, Status(err), "check that the target's caFile or ca in config.json has the authority that issued the proxy's certificate")
}
