package config

import "testing"

func TestAccountsNameCredentialsWithoutSecrets(t *testing.T) {
	const certificate = "the client certificate in /tls/client.pem"
	for _, test := range []struct {
		credential Credential
		want       string
	}{
		{Credential{Username: "csi", Password: "hidden"}, `the user name "csi" and its password`},
		{Credential{Token: "hidden"}, "the token"},
		{Credential{TokenFile: "/tokens/a"}, "the token in /tokens/a"},
		{Credential{}, ""},
	} {
		if got := test.credential.Account(); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.credential, got, test.want)
		}
		withCertificate := test.credential
		withCertificate.CertFile, withCertificate.KeyFile = "/tls/client.pem", "/tls/client.key"
		want := certificate
		if test.want != "" {
			want = test.want + " with " + certificate
		}
		if got := withCertificate.Account(); got != want {
			t.Errorf("%+v: got %q, want %q", withCertificate, got, want)
		}
	}
}

func TestCredentialProblemsAreDescribed(t *testing.T) {
	for _, test := range []struct {
		credential Credential
		want       string
	}{
		{Credential{Name: "a", Username: "csi"}, ""},
		{Credential{Name: "a", Username: "csi", Password: "p"}, ""},
		{Credential{Name: "a", Token: "t"}, ""},
		{Credential{Name: "a", TokenFile: "f"}, ""},
		{Credential{Name: "a", CertFile: "c", KeyFile: "k"}, ""},
		{Credential{Name: "a", Token: "t", CertFile: "c", KeyFile: "k"}, ""},
		{Credential{Token: "t"}, "has no name"},
		{Credential{Name: "a"}, "has no username, token, tokenFile or certFile"},
		{Credential{Name: "a", Password: "p", CertFile: "c", KeyFile: "k"}, "must have one of username with password, token and tokenFile"},
		{Credential{Name: "a", Token: "t", Password: "p"}, "must have one of username with password, token and tokenFile"},
		{Credential{Name: "a", Username: "csi", Token: "t"}, "must have one of username with password, token and tokenFile"},
		{Credential{Name: "a", Token: "t", TokenFile: "f"}, "must have one of username with password, token and tokenFile"},
		{Credential{Name: "a", Token: "t", CertFile: "c"}, "needs certFile and keyFile together"},
		{Credential{Name: "a", Token: "t", KeyFile: "k"}, "needs certFile and keyFile together"},
	} {
		if got := test.credential.check(); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.credential, got, test.want)
		}
	}
}
