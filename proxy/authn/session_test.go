package authn

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
)

// A session ends when its own credential is changed or removed, but not when another user's is.
func TestSessionEndsWhenItsCredentialChanges(t *testing.T) {
	authority, issuer := authntest.NewAuthority(t, "ours"), authntest.NewIssuer(t)
	token, until := NewToken(), time.Now().Add(time.Hour)
	hash := func(password string) Hash {
		text, err := HashPassword(password)
		require.NoError(t, err)
		h, err := ParseHash(text)
		require.NoError(t, err)
		return h
	}
	right := hash("right")
	users := func(change func(u map[string]*User)) (list []User) {
		u := map[string]*User{
			"ann": {Hashes: []Hash{right}}, "backup": {Tokens: []TokenHash{HashToken(token, until)}},
			"dns": {Certificate: &CertificateName{SANDNS, "dashboard.example"}}, "csi": {JWT: &JWTRule{Issuer: "cluster", Subject: driver}},
		}
		change(u)
		for name, user := range u {
			user.Name = name
			list = append(list, *user)
		}
		return list
	}
	options := Options{ClientCAs: authority.Pool(), Issuers: []Issuer{{Name: "cluster", URL: issuer.URL, Audience: audience, Authority: string(issuer.CA)}}}
	a, err := New(users(func(map[string]*User) {}), options)
	require.NoError(t, err)
	certificate := certified(authority.Client(func(c *x509.Certificate) { c.DNSNames = []string{"dashboard.example"} }))
	jwt := issuer.Token(audience, driver, nil)
	began := map[string]Binding{}
	for name, in := range map[string]SignIn{
		"ann": {Method: ByPassword, User: "ann", Password: "right"}, "backup": {Method: ByToken, Token: token}, "dns": {Method: ByCertificate}, "csi": {Method: ByToken, Token: jwt},
	} {
		who, b, err := a.SignIn(t.Context(), in, certificate)
		require.NoError(t, err, name)
		assert.Equal(t, name, who.User)
		assert.Equal(t, who, b.Identity())
		assert.NoError(t, a.Holds(b, certificate), name)
		began[name] = b
	}
	assert.WithinDuration(t, until, began["backup"].Until, time.Second)
	assert.WithinDuration(t, time.Now().Add(time.Hour), began["csi"].Until, time.Minute)
	assert.Equal(t, certificate.Certificates[0].NotAfter, began["dns"].Until)
	assert.Zero(t, began["ann"].Until)

	for what, c := range map[string]struct {
		ends    []string // users whose sessions end
		users   func(u map[string]*User)
		options func(o *Options)
	}{
		"nothing":           {nil, nil, nil},
		"replaced password": {[]string{"ann"}, func(u map[string]*User) { u["ann"].Hashes = []Hash{hash("right")} }, nil},
		"removed password":  {[]string{"ann"}, func(u map[string]*User) { u["ann"].Hashes = nil }, nil},
		"removed user":      {[]string{"ann"}, func(u map[string]*User) { delete(u, "ann") }, nil},
		"replaced token":    {[]string{"backup"}, func(u map[string]*User) { u["backup"].Tokens = []TokenHash{HashToken(NewToken(), until)} }, nil},
		"the token expires": {[]string{"backup"}, func(u map[string]*User) { u["backup"].Tokens = []TokenHash{HashToken(token, until.Add(-time.Minute))} }, nil},
		"token moved to another user": {[]string{"backup"}, func(u map[string]*User) {
			u["ann"].Tokens, u["backup"].Tokens = u["backup"].Tokens, nil
		}, nil},
		"changed certificate name":               {[]string{"dns"}, func(u map[string]*User) { u["dns"].Certificate.Value = "other.example" }, nil},
		"certificate name moved to another user": {[]string{"dns"}, func(u map[string]*User) { u["ann"].Certificate, u["dns"].Certificate = u["dns"].Certificate, nil }, nil},
		"another authority":                      {[]string{"dns"}, nil, func(o *Options) { o.ClientCAs = authntest.NewAuthority(t, "new").Pool() }},
		"another subject":                        {[]string{"csi"}, func(u map[string]*User) { u["csi"].JWT.Subject = "other" }, nil},
		"another claim":                          {[]string{"csi"}, func(u map[string]*User) { u["csi"].JWT.Claims = map[string]string{"mfa": "true"} }, nil},
		"another audience":                       {[]string{"csi"}, nil, func(o *Options) { o.Issuers[0].Audience = "other" }},
		"other keys":                             {[]string{"csi"}, nil, func(o *Options) { o.Issuers[0].Authority, o.Issuers[0].JWKS = "", issuer.JWKS() }},
		"no issuer":                              {[]string{"csi"}, func(u map[string]*User) { delete(u, "csi") }, func(o *Options) { o.Issuers = nil }},
		"additional credentials of every kind": {nil, func(u map[string]*User) {
			u["backup"].Tokens = append(u["backup"].Tokens, HashToken(NewToken(), until))
			u["ann"].Hashes = []Hash{hash("next"), right}
		}, nil},
		"an hour later":        {[]string{"backup", "csi", "dns"}, nil, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(time.Hour) } }},
		"another failure rate": {nil, nil, func(o *Options) { o.FailuresPerMinute = 7 }},
	} {
		t.Run(what, func(t *testing.T) {
			o := options
			o.Issuers, o.Former = append([]Issuer{}, options.Issuers...), a
			if c.options != nil {
				c.options(&o)
			}
			if c.users == nil {
				c.users = func(map[string]*User) {}
			}
			now, err := New(users(c.users), o)
			require.NoError(t, err)
			var ended []string
			for _, name := range []string{"ann", "backup", "csi", "dns"} {
				if err := now.Holds(began[name], certificate); err != nil {
					assert.ErrorIs(t, err, ErrCredentialChanged)
					ended = append(ended, name)
				}
			}
			assert.Equal(t, c.ends, ended)
		})
	}

	other := certified(authority.Client(func(c *x509.Certificate) { c.DNSNames = []string{"dashboard.example"} }))
	for _, e := range []Evidence{{Source: here}, other} {
		require.ErrorIs(t, a.Holds(began["dns"], e), ErrOtherConnection)
	}
	options.RequireCertificate, options.Former = true, a
	strict, err := New(users(func(map[string]*User) {}), options)
	require.NoError(t, err)
	require.NoError(t, strict.Holds(began["ann"], certificate))
	require.ErrorIs(t, strict.Holds(began["ann"], Evidence{Source: here}), ErrWrongCredentials, "every request needs a certificate, including those of sessions")
	_, _, err = strict.SignIn(t.Context(), SignIn{Method: ByPassword, User: "ann", Password: "right"}, Evidence{Source: here})
	require.ErrorIs(t, err, ErrWrongCredentials)
}

func TestConfiguredSignInMethodsAreReported(t *testing.T) {
	a, err := New([]User{{Name: "ann", Hashes: []Hash{newCountingHash("right", 1)}}}, Options{})
	require.NoError(t, err)
	assert.True(t, a.TakesPasswords())
	assert.False(t, a.TakesCertificates())
	assert.False(t, a.TakesCodes())
	_, _, err = a.SignIn(t.Context(), SignIn{Method: ByCode, Code: "c"}, Evidence{Source: here})
	require.ErrorIs(t, err, ErrWrongCredentials)
	b, err := New([]User{{Name: "dns", Certificate: &CertificateName{SANDNS, "d"}}}, Options{ClientCAs: authntest.NewAuthority(t, "a").Pool()})
	require.NoError(t, err)
	assert.False(t, b.TakesPasswords())
	assert.True(t, b.TakesCertificates())
}
