package authn

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
)

const spiffe = "spiffe://cluster.example/ns/spdkcsi/sa/controller"

func certified(pair tls.Certificate) Evidence {
	e := Evidence{Source: here}
	for _, der := range pair.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			panic(err)
		}
		e.Certificates = append(e.Certificates, cert)
	}
	return e
}

func certificateUsers() []User {
	return []User{
		{Name: "dns", Certificate: &CertificateName{SANDNS, "dashboard.example"}},
		{Name: "uri", Certificate: &CertificateName{SANURI, spiffe}},
		{Name: "email", Certificate: &CertificateName{SANEmail, "ann@example"}},
		{Name: "cn", Certificate: &CertificateName{CN, "ann"}},
		{Name: "with password", Hashes: []Hash{newCountingHash("right", 1)}},
	}
}

// Without configured authorities, no client certificate is valid. The standard library would fall
// back to the system's authorities, which the proxy must not trust. This case arises if a reload
// removes the authorities after a client has presented its certificate.
func TestNoCertificateIsValidWithoutAuthorities(t *testing.T) {
	a, err := New(certificateUsers(), Options{})
	require.NoError(t, err)
	_, err = a.Authenticate(t.Context(), certified(authntest.NewAuthority(t, "public").Client(func(c *x509.Certificate) { c.DNSNames = []string{"dashboard.example"} })))
	require.ErrorIs(t, err, ErrWrongCredentials)
	require.ErrorContains(t, err, "does not accept client certificates")
}

func TestClientCertificatesAreVerified(t *testing.T) {
	authority, stranger := authntest.NewAuthority(t, "ours"), authntest.NewAuthority(t, "ours")
	between := authority.Intermediate("between")
	a, err := New(certificateUsers(), Options{FailuresPerMinute: 6000, ClientCAs: authority.Pool()})
	require.NoError(t, err)
	uri, err := url.Parse(spiffe)
	require.NoError(t, err)
	dns := func(c *x509.Certificate) { c.DNSNames = []string{"dashboard.example"} }
	for name, c := range map[string]struct {
		signer *authntest.Authority
		above  []*authntest.Authority
		change func(*x509.Certificate)
		user   string
		says   string // part of the reason for rejecting the certificate
	}{
		"DNS name":                       {change: dns, user: "dns"},
		"URI":                            {change: func(c *x509.Certificate) { c.URIs = []*url.URL{uri} }, user: "uri"},
		"mail address":                   {change: func(c *x509.Certificate) { c.EmailAddresses = []string{"ann@example"} }, user: "email"},
		"common name":                    {change: func(c *x509.Certificate) { c.Subject.CommonName = "ann" }, user: "cn"},
		"two names of one user":          {change: func(c *x509.Certificate) { dns(c); c.Subject.CommonName = "dashboard.example" }, user: "dns"},
		"one intermediate authority":     {signer: between, above: []*authntest.Authority{between}, change: dns, user: "dns"},
		"many intermediate authorities":  {above: slices.Repeat([]*authntest.Authority{between}, maxChain), change: dns, says: "with 8 others"},
		"missing intermediate authority": {signer: between, change: dns, says: "unknown authority"},
		"other kind of name":             {change: func(c *x509.Certificate) { c.Subject.CommonName = "dashboard.example" }, says: `cn "dashboard.example"`},
		"other case":                     {change: func(c *x509.Certificate) { c.DNSNames = []string{"Dashboard.example"} }, says: `san_dns "Dashboard.example"`},
		"wildcard":                       {change: func(c *x509.Certificate) { c.DNSNames = []string{"*.example"} }, says: `san_dns "*.example"`},
		"certificate of two users":       {change: func(c *x509.Certificate) { dns(c); c.Subject.CommonName = "ann" }, says: "several users"},
		"two common names": {change: func(c *x509.Certificate) {
			c.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: commonName, Value: "eve"}, {Type: commonName, Value: "ann"}}
		}, says: "(it has none)"},
		"certificate of no user":               {change: func(c *x509.Certificate) { c.DNSNames = []string{"other.example"} }, says: `ask the administrator of this proxy to add a user with one of san_dns "other.example"`},
		"without names":                        {change: func(*x509.Certificate) {}, says: "(it has none)"},
		"another authority with the same name": {signer: stranger, change: dns, says: "does not trust, or no longer trusts"},
		"expired":                              {change: func(c *x509.Certificate) { dns(c); c.NotAfter = time.Now().Add(-time.Minute) }, says: "expired"},
		"not valid yet":                        {change: func(c *x509.Certificate) { dns(c); c.NotBefore = time.Now().Add(time.Minute) }, says: "not yet valid"},
		"only for servers":                     {change: func(c *x509.Certificate) { dns(c); c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, says: "incompatible key usage"},
		"without any extended key usage":       {change: func(c *x509.Certificate) { dns(c); c.ExtKeyUsage = nil }, says: "lacks the extended key usage clientAuth"},
		"for any usage":                        {change: func(c *x509.Certificate) { dns(c); c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }, user: "dns"},
	} {
		t.Run(name, func(t *testing.T) {
			signer := authority
			if c.signer != nil {
				signer = c.signer
			}
			e := certified(signer.Client(c.change, c.above...))
			for range 2 { // the second time from the cache, if the result can be cached
				who, err := a.Authenticate(t.Context(), e)
				assert.Equal(t, c.user, who.User)
				assert.Equal(t, ByCertificate, who.Method)
				assert.Equal(t, e.Certificates[0].SerialNumber.Text(16), who.Credential)
				if c.user != "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, ErrWrongCredentials)
				require.ErrorContains(t, err, c.says)
			}
		})
	}
}

// If a request has both an Authorization header and a certificate, only the header counts, even if
// it is wrong.
func TestHeaderTakesPrecedenceOverCertificate(t *testing.T) {
	authority := authntest.NewAuthority(t, "ours")
	token := NewToken()
	users := append(certificateUsers(), User{Name: "backup", Tokens: []TokenHash{HashToken(token, time.Time{})}})
	good := certified(authority.Client(func(c *x509.Certificate) { c.DNSNames = []string{"dashboard.example"} })).Certificates
	nobodys := certified(authority.Client(func(c *x509.Certificate) { c.DNSNames = []string{"other.example"} })).Certificates
	strange := certified(authntest.NewAuthority(t, "x").Client(func(c *x509.Certificate) { c.DNSNames = []string{"dashboard.example"} })).Certificates
	right := basic("with password", "right")
	for name, c := range map[string]struct {
		headers  []string
		chain    []*x509.Certificate
		required bool
		user     string
		err      error
	}{
		"nothing":                             {err: ErrNoCredentials},
		"certificate":                         {chain: good, user: "dns"},
		"password":                            {headers: []string{right}, user: "with password"},
		"password and certificate":            {headers: []string{right}, chain: good, user: "with password"},
		"token and certificate":               {headers: []string{"Bearer " + token}, chain: good, user: "backup"},
		"password and certificate of no user": {headers: []string{right}, chain: nobodys, user: "with password"},
		"password and certificate of another authority":  {headers: []string{right}, chain: strange, user: "with password"},
		"wrong password and certificate":                 {headers: []string{basic("with password", "x")}, chain: good, err: ErrWrongCredentials},
		"wrong token and certificate":                    {headers: []string{"Bearer " + NewToken()}, chain: good, err: ErrWrongCredentials},
		"unknown scheme and certificate":                 {headers: []string{"Negotiate x"}, chain: good, err: ErrNoCredentials},
		"empty header and certificate":                   {headers: []string{""}, chain: good, err: ErrNoCredentials},
		"two headers and certificate":                    {headers: []string{right, right}, chain: good, err: ErrNoCredentials},
		"required, no credentials":                       {required: true, err: ErrWrongCredentials},
		"required, certificate":                          {required: true, chain: good, user: "dns"},
		"required, password":                             {required: true, headers: []string{right}, err: ErrWrongCredentials},
		"required, both":                                 {required: true, headers: []string{right}, chain: good, user: "with password"},
		"required, certificate of no user":               {required: true, headers: []string{right}, chain: nobodys, user: "with password"},
		"required, certificate of another authority":     {required: true, headers: []string{right}, chain: strange, err: ErrWrongCredentials},
		"required, wrong password and valid certificate": {required: true, headers: []string{basic("dns", "")}, chain: good, err: ErrWrongCredentials},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := New(users, Options{ClientCAs: authority.Pool(), RequireCertificate: c.required})
			require.NoError(t, err)
			for range 2 {
				who, err := a.Authenticate(t.Context(), Evidence{Authorization: c.headers, Certificates: c.chain, Source: here})
				if c.err != nil {
					require.ErrorIs(t, err, c.err)
					continue
				}
				require.NoError(t, err)
				assert.Equal(t, c.user, who.User)
			}
		})
	}
}

// A verified certificate stays in the cache only until it or its signer's certificate expires, or
// until the configuration is reloaded.
func TestVerifiedCertificatesExpire(t *testing.T) {
	authority := authntest.NewAuthority(t, "ours")
	e := certified(authority.Client(func(c *x509.Certificate) {
		c.DNSNames, c.NotAfter = []string{"dashboard.example"}, time.Now().Add(time.Minute)
	}))
	now := time.Now()
	a, err := New(certificateUsers(), Options{ClientCAs: authority.Pool(), Now: func() time.Time { return now }})
	require.NoError(t, err)
	for range 2 {
		_, err = a.Authenticate(t.Context(), e)
		require.NoError(t, err)
	}
	assert.Len(t, a.certificates.memory.known, 1)
	now = now.Add(2 * time.Minute)
	_, err = a.Authenticate(t.Context(), e)
	require.ErrorContains(t, err, "expired")

	for name, pool := range map[string]*x509.CertPool{"other authority": authntest.NewAuthority(t, "x").Pool(), "none": nil} {
		a, err = New(certificateUsers(), Options{ClientCAs: pool})
		require.NoError(t, err)
		_, err = a.Authenticate(t.Context(), e)
		require.ErrorIs(t, err, ErrWrongCredentials, name)
		require.ErrorContains(t, err, "on a new connection", name)
	}
}

func TestInvalidAndDuplicateCertificateNamesAreRejected(t *testing.T) {
	name := func(kind NameKind, value string) *CertificateName { return &CertificateName{kind, value} }
	for says, users := range map[string][]User{
		"users a and b have the same certificate name: cn x": {{Name: "a", Certificate: name(CN, "x")}, {Name: "b", Certificate: name(CN, "x")}},
		"user a: certificate: san_dns is empty":              {{Name: "a", Certificate: name(SANDNS, "")}},
		"without wildcards (*)":                              {{Name: "a", Certificate: name(SANDNS, "*.example")}},
		"must be a complete URI":                             {{Name: "a", Certificate: name(SANURI, "cluster.example/ns")}},
	} {
		_, err := New(users, Options{})
		require.ErrorContains(t, err, says)
	}
}

func TestNumberOfCachedCredentialsIsLimited(t *testing.T) {
	now := time.Unix(1e9, 0)
	m := newMemory(func() time.Time { return now })
	for i := range 3 * maxRemembered {
		m.keep(mac{byte(i), byte(i >> 8), byte(i >> 16)}, Identity{User: "a"}, now.Add(time.Hour))
		require.LessOrEqual(t, len(m.known), maxRemembered)
	}
	sum := mac{255, 255, 255}
	m.keep(sum, Identity{User: "b"}, now.Add(time.Minute))
	who, ok := m.recall(sum)
	assert.True(t, ok)
	assert.Equal(t, "b", who.User)
	now = now.Add(time.Minute)
	_, ok = m.recall(sum)
	assert.False(t, ok)
}

// When the cache is full, expired credentials are evicted first. Other credentials are evicted only
// until a quarter of the space is free.
func TestExpiredCredentialsAreEvictedFirst(t *testing.T) {
	now := time.Unix(1e9, 0)
	m := newMemory(func() time.Time { return now })
	sum := func(i int) mac { return mac{byte(i), byte(i >> 8), byte(i >> 16)} }
	for i := range maxRemembered {
		m.keep(sum(i), Identity{User: "a"}, now.Add(time.Hour+time.Duration(i%2)*time.Hour))
	}
	require.Len(t, m.known, maxRemembered)
	now = now.Add(time.Hour)
	m.keep(sum(maxRemembered), Identity{User: "a"}, now.Add(2*time.Hour))
	require.Len(t, m.known, maxRemembered/2+1)
	for i := 1; i < maxRemembered; i += 2 {
		_, ok := m.recall(sum(i))
		require.True(t, ok, i)
	}
	for i := range maxRemembered/2 - 1 {
		m.keep(sum(maxRemembered+1+i), Identity{User: "a"}, now.Add(2*time.Hour))
	}
	require.Len(t, m.known, maxRemembered)
	m.keep(sum(2*maxRemembered), Identity{User: "a"}, now.Add(2*time.Hour))
	assert.Len(t, m.known, maxRemembered*3/4+1)
}

func BenchmarkAuthenticateCertificate(b *testing.B) {
	authority := authntest.NewAuthority(b, "ours")
	a, err := New(certificateUsers(), Options{ClientCAs: authority.Pool()})
	require.NoError(b, err)
	e := certified(authority.Client(func(c *x509.Certificate) { c.DNSNames = []string{"dashboard.example"} }))
	for b.Loop() {
		_, _ = a.Authenticate(b.Context(), e)
	}
}
