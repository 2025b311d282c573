package authn

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
)

func TestRevokedCertificatesAreRejected(t *testing.T) {
	root := authntest.NewAuthority(t, "root")
	between := root.Intermediate("between")
	other := authntest.NewAuthority(t, "root") // another authority with the same name
	named := func(c *x509.Certificate) { c.DNSNames = []string{"dashboard.example"} }
	client, sibling := between.Client(named, between), between.Client(named, between)
	now := time.Now()
	for name, c := range map[string]struct {
		lists [][]byte
		says  string
	}{
		"revocation is not checked":                        {nil, ""},
		"nothing revoked":                                  {[][]byte{root.Revoke(now), between.Revoke(now)}, ""},
		"another certificate revoked":                      {[][]byte{root.Revoke(now), between.Revoke(now, sibling.Leaf)}, ""},
		"revoked":                                          {[][]byte{root.Revoke(now), between.Revoke(now, sibling.Leaf, client.Leaf)}, "was revoked"},
		"revoked by the parent authority":                  {[][]byte{root.Revoke(now, client.Leaf), between.Revoke(now)}, ""},
		"its authority revoked":                            {[][]byte{root.Revoke(now, between.Certificate()), between.Revoke(now)}, "was revoked"},
		"an older list revokes":                            {[][]byte{root.Revoke(now), between.Revoke(now.Add(-time.Minute), client.Leaf), between.Revoke(now)}, ""},
		"a newer list revokes":                             {[][]byte{root.Revoke(now), between.Revoke(now, client.Leaf), between.Revoke(now.Add(-time.Minute))}, "was revoked"},
		"no list from its authority":                       {[][]byte{root.Revoke(now)}, `has no list of the certificates that "CN=between" has revoked`},
		"no list from the parent authority":                {[][]byte{between.Revoke(now)}, `has no list of the certificates that "CN=root" has revoked`},
		"a list from another authority with the same name": {[][]byte{other.Revoke(now), between.Revoke(now)}, `has no list of the certificates that "CN=root" has revoked`},
		"an expired list":                                  {[][]byte{root.Revoke(now), between.Revoke(now.Add(-2 * time.Hour))}, `that "CN=between" has revoked expired on `},
		"an expired list that revokes it":                  {[][]byte{root.Revoke(now), between.Revoke(now.Add(-2*time.Hour), client.Leaf)}, `that "CN=between" has revoked expired on `},
		"the list of the root has expired":                 {[][]byte{root.Revoke(now.Add(-time.Hour)), between.Revoke(now)}, `that "CN=root" has revoked expired on `},
	} {
		t.Run(name, func(t *testing.T) {
			var lists []*x509.RevocationList
			for _, text := range c.lists {
				block, _ := pem.Decode(text)
				list, err := x509.ParseRevocationList(block.Bytes)
				require.NoError(t, err)
				lists = append(lists, list)
			}
			a, err := New(certificateUsers(), Options{FailuresPerMinute: 6000, ClientCAs: root.Pool(), Revoked: lists})
			require.NoError(t, err)
			_, err = a.Authenticate(t.Context(), certified(client))
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrWrongCredentials)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// A verified certificate is cached only until the first revocation list expires.
func TestRevocationListsExpire(t *testing.T) {
	authority, now := authntest.NewAuthority(t, "ours"), time.Now()
	client := authority.Client(func(c *x509.Certificate) {
		c.DNSNames, c.NotAfter = []string{"dashboard.example"}, now.Add(24*time.Hour)
	})
	block, _ := pem.Decode(authority.Revoke(now))
	list, err := x509.ParseRevocationList(block.Bytes)
	require.NoError(t, err)
	a, err := New(certificateUsers(), Options{ClientCAs: authority.Pool(), Revoked: []*x509.RevocationList{list}, Now: func() time.Time { return now }})
	require.NoError(t, err)
	_, err = a.Authenticate(t.Context(), certified(client))
	require.NoError(t, err)
	now = now.Add(59 * time.Minute) // the authority's certificate is also valid for only an hour
	_, err = a.Authenticate(t.Context(), certified(client))
	require.NoError(t, err)
	now = list.NextUpdate
	_, err = a.Authenticate(t.Context(), certified(client))
	require.ErrorIs(t, err, ErrWrongCredentials)
}
