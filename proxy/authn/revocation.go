package authn

import (
	"bytes"
	"crypto/x509"
	"slices"
	"time"
)

// revocations contains certificate revocation lists. If it is nil, revocation is not checked.
// Otherwise, it must contain a valid list from each authority in a certificate's path, because a
// missing list could contain the certificate.
type revocations []*x509.RevocationList

// check returns an error if a certificate in path was revoked, or if this cannot be determined.
// Otherwise, it returns the time until which the result is valid. path leads from a verified
// certificate to its authority.
func (r revocations) check(path []*x509.Certificate, now time.Time) (until time.Time, err error) {
	until = path[0].NotAfter
	if r == nil {
		return until, nil
	}
	for i, cert := range path[:len(path)-1] {
		list := r.of(path[i+1])
		switch {
		case list == nil:
			return until, rejected("this proxy has no list of the certificates that %q has revoked: ask its administrator to add one to tls.client_crl_file", path[i+1].Subject)
		case !now.Before(list.NextUpdate):
			return until, rejected("this proxy's list of the certificates that %q has revoked expired on %s: ask its administrator to renew it (tls.client_crl_file)", path[i+1].Subject, list.NextUpdate.UTC().Format(time.RFC3339))
		case slices.ContainsFunc(list.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(cert.SerialNumber) == 0 }):
			return until, rejected("the client certificate, or that of an authority between it and one that this proxy trusts, was revoked: send another one, on a new connection")
		}
		until = earlier(until, list.NextUpdate)
	}
	return until, nil
}

// of returns the newest list signed by an authority, or nil if there is none.
func (r revocations) of(authority *x509.Certificate) (newest *x509.RevocationList) {
	for _, list := range r {
		if bytes.Equal(list.RawIssuer, authority.RawSubject) && list.CheckSignatureFrom(authority) == nil && (newest == nil || list.ThisUpdate.After(newest.ThisUpdate)) {
			newest = list
		}
	}
	return newest
}
