package authn

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A NameKind is a kind of name in a certificate.
type NameKind string

// These are the supported kinds of names.
const (
	SANDNS   NameKind = "san_dns"
	SANURI   NameKind = "san_uri"
	SANEmail NameKind = "san_email"
	CN       NameKind = "cn"
)

// A CertificateName is a name in a client certificate. Names are compared exactly.
type CertificateName struct {
	Kind  NameKind
	Value string
}

func (n CertificateName) String() string { return string(n.Kind) + " " + n.Value }

func (n CertificateName) check() error {
	switch {
	case n.Value == "":
		return fmt.Errorf("certificate: %s is empty", n.Kind)
	case strings.Contains(n.Value, "*"):
		return fmt.Errorf("certificate: %s is compared exactly, without wildcards (*): add a user for each name", n.Kind)
	case n.Kind == SANURI:
		if u, err := url.Parse(n.Value); err != nil || u.Scheme == "" || u.String() != n.Value {
			return fmt.Errorf("certificate: %s must be a complete URI, such as spiffe://cluster.example/ns/spdkcsi/sa/controller", n.Kind)
		}
	}
	return nil
}

// certificates authenticates users by a name in their client certificate.
//
// The TLS handshake has proved that the client has the private key. The certificate is verified
// against the current authorities on each request, because a connection may last for days. The
// results are cached.
type certificates struct {
	authorities *x509.CertPool
	revoked     revocations
	required    bool
	users       map[CertificateName]string
	sums        *macer
	memory      *memory // cache of verified certificates, including those of unknown users
	now         func() time.Time
}

func newCertificates(users []User, sums *macer, opts Options) (*certificates, error) {
	c := &certificates{
		authorities: opts.ClientCAs, revoked: opts.Revoked, required: opts.RequireCertificate, users: map[CertificateName]string{},
		sums: sums, memory: newMemory(opts.Now), now: opts.Now,
	}
	var wrong []error
	for _, u := range users {
		if u.Certificate == nil {
			continue
		}
		name := *u.Certificate
		if err := name.check(); err != nil {
			wrong = append(wrong, fmt.Errorf("user %s: %w", u.Name, err))
		}
		if other, taken := c.users[name]; taken {
			wrong = append(wrong, fmt.Errorf("users %s and %s have the same certificate name: %s", other, u.Name, name))
		}
		c.users[name] = u.Name
	}
	return c, errors.Join(wrong...)
}

// identify returns the user to whom the first certificate of the chain belongs.
func (c *certificates) identify(chain []*x509.Certificate) (Identity, error) {
	who, err := c.check(chain)
	if err == nil && who.User == "" {
		err = rejected("the client certificate is valid, but no user has one of its names: ask the administrator of this proxy to add a user with one of %s", describe(namesOf(chain[0])))
	}
	return who, err
}

// check verifies a certificate and returns its user. If no user has any of the certificate's names,
// the Identity contains no user.
func (c *certificates) check(chain []*x509.Certificate) (Identity, error) {
	who := Identity{Method: ByCertificate}
	if len(chain) == 0 {
		return who, rejected("this proxy requires a client certificate: send one of an authority that it trusts")
	}
	raw := make([][]byte, len(chain))
	for i, cert := range chain {
		raw[i] = cert.Raw
	}
	sum := sumOf(c.sums, ByCertificate, raw...)
	if known, ok := c.memory.recall(sum); ok {
		return known, nil
	}
	leaf := chain[0]
	who.Credential = leaf.SerialNumber.Text(16)
	until, err := c.verify(chain)
	if err != nil {
		return who, err
	}
	for _, name := range namesOf(leaf) {
		user, ok := c.users[name]
		switch {
		case !ok || user == who.User:
		case who.User != "":
			who.User = ""
			return who, rejected("the client certificate contains the names of several users: ask the administrator of this proxy for one with the names of one user only")
		default:
			who.User = user
		}
	}
	c.memory.keep(sum, who, until)
	return who, nil
}

// maxChain limits the length of a chain, because verification takes longer for long chains.
const maxChain = 8

// verify verifies a certificate, and returns the end of its validity. The standard library checks
// dates, constraints and the extended key usage; forClients checks the extended key usage more
// strictly.
func (c *certificates) verify(chain []*x509.Certificate) (until time.Time, err error) {
	if len(chain) > maxChain {
		return until, rejected("the client certificate is sent with %d others: send only those between it and an authority that this proxy trusts", len(chain)-1)
	}
	if c.authorities == nil {
		return until, rejected("this proxy does not accept client certificates: send a name and password or a token, on a new connection")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	verified, err := chain[0].Verify(x509.VerifyOptions{
		Roots: c.authorities, Intermediates: intermediates, CurrentTime: c.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err == nil && !forClients(chain[0]) {
		return until, rejected("the client certificate lacks the extended key usage clientAuth: request a certificate with it")
	}
	if err != nil {
		return until, rejected("this proxy does not trust, or no longer trusts, the client certificate (%s): send a valid one, on a new connection", err)
	}
	for _, path := range verified {
		end, refused := c.revoked.check(path, c.now())
		if refused != nil {
			err = refused
			continue
		}
		end = earlier(end, slices.MinFunc(path, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter)
		if end.After(until) {
			until = end
		}
	}
	if !until.IsZero() { // one valid path is enough
		return until, nil
	}
	return until, err
}

// forClients reports whether a certificate lists client authentication as an extended key usage.
// The standard library also accepts certificates without any extended key usage. With such a
// certificate, any host that the authority has certified, such as an old server, could log in.
func forClients(cert *x509.Certificate) bool {
	return slices.ContainsFunc(cert.ExtKeyUsage, func(u x509.ExtKeyUsage) bool { return u == x509.ExtKeyUsageClientAuth || u == x509.ExtKeyUsageAny })
}

// namesOf lists the names in a certificate. It ignores common names if there is more than one,
// because it is unclear which of them counts.
func namesOf(cert *x509.Certificate) (names []CertificateName) {
	add := func(kind NameKind, value string) { names = append(names, CertificateName{kind, value}) }
	for _, n := range cert.DNSNames {
		add(SANDNS, n)
	}
	for _, u := range cert.URIs {
		add(SANURI, u.String())
	}
	for _, n := range cert.EmailAddresses {
		add(SANEmail, n)
	}
	commonNames := 0
	for _, n := range cert.Subject.Names {
		if n.Type.Equal(commonName) {
			commonNames++
		}
	}
	if commonNames == 1 && cert.Subject.CommonName != "" {
		add(CN, cert.Subject.CommonName)
	}
	return names
}

var commonName = asn1.ObjectIdentifier{2, 5, 4, 3}

// maxDescribed is the maximum number of a certificate's names that an error lists.
const maxDescribed = 10

// describe lists names for an error.
func describe(names []CertificateName) string {
	if len(names) == 0 {
		return "(it has none)"
	}
	words := make([]string, 0, maxDescribed)
	for _, n := range names[:min(len(names), maxDescribed)] {
		words = append(words, fmt.Sprintf("%s %q", n.Kind, n.Value))
	}
	return strings.Join(words, ", ")
}
