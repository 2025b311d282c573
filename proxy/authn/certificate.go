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

// A NameKind says which of a certificate's names is meant.
type NameKind string

// The kinds of names.
const (
	SANDNS   NameKind = "san_dns"
	SANURI   NameKind = "san_uri"
	SANEmail NameKind = "san_email"
	CN       NameKind = "cn"
)

// A CertificateName is a name in a client certificate, to be matched exactly.
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
		return fmt.Errorf("certificate: %s is matched exactly, a * stands for nothing: give each name a user", n.Kind)
	case n.Kind == SANURI:
		if u, err := url.Parse(n.Value); err != nil || u.Scheme == "" || u.String() != n.Value {
			return fmt.Errorf("certificate: %s must be a whole URI, such as spiffe://cluster.example/ns/spdkcsi/sa/controller", n.Kind)
		}
	}
	return nil
}

// certificates recognise users by a name in the client certificate.
//
// The TLS handshake has shown that the client holds its key. Each request's is
// verified by the authorities of now, as a connection may live for days; that costs
// something only the first time. There are no revocation lists: a certificate is
// locked out by taking its name from users.
type certificates struct {
	authorities *x509.CertPool
	required    bool
	users       map[CertificateName]string
	sums        *summer
	memory      *memory // verified; of nobody too
	now         func() time.Time
}

func newCertificates(users []User, sums *summer, opts Options) (*certificates, error) {
	c := &certificates{
		authorities: opts.ClientCAs, required: opts.RequireCertificate, users: map[CertificateName]string{},
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
		if other, twice := c.users[name]; twice {
			wrong = append(wrong, fmt.Errorf("the users %s and %s have the same certificate: %s", other, u.Name, name))
		}
		c.users[name] = u.Name
	}
	return c, errors.Join(wrong...)
}

// identify tells whose certificate it is.
func (c *certificates) identify(chain []*x509.Certificate) (Identity, error) {
	who, err := c.check(chain)
	if err == nil && who.User == "" {
		err = rejected("the client certificate is valid, but none of its names is a user's: ask whoever runs this proxy to give a user one of %s", describe(namesOf(chain[0])))
	}
	return who, err
}

// check verifies a certificate, and tells whose it is, if it is anybody's.
func (c *certificates) check(chain []*x509.Certificate) (Identity, error) {
	who := Identity{Method: ByCertificate}
	if len(chain) == 0 {
		return who, rejected("this proxy wants a client certificate: show one of an authority that it trusts")
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
			return who, rejected("the client certificate is that of several users: ask whoever runs this proxy for one with the names of one user only")
		default:
			who.User = user
		}
	}
	c.memory.keep(sum, who, until)
	return who, nil
}

// maxChain bounds what verifying may cost.
const maxChain = 8

// verify tells until when a certificate is good. The standard library looks at
// dates, constraints and that its use is client authentication.
func (c *certificates) verify(chain []*x509.Certificate) (until time.Time, err error) {
	if len(chain) > maxChain {
		return until, rejected("the client certificate comes with %d others: show only those of the authorities between it and one that this proxy trusts", len(chain)-1)
	}
	if c.authorities == nil {
		return until, rejected("this proxy takes no client certificates: give a name and password or a token, on a new connection")
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	verified, err := chain[0].Verify(x509.VerifyOptions{
		Roots: c.authorities, Intermediates: between, CurrentTime: c.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err == nil && !forClients(chain[0]) {
		return until, rejected("the client certificate does not say that it is for client authentication (extended key usage): have it made with clientAuth")
	}
	if err != nil {
		return until, rejected("the client certificate is not, or no longer, one that this proxy trusts (%s): show a valid one, on a new connection", err)
	}
	for _, way := range verified {
		end := slices.MinFunc(way, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
		if end.After(until) {
			until = end
		}
	}
	return until, nil
}

// forClients tells whether a certificate names client authentication among its
// uses. To the standard library one that names no use at all is good for every use,
// so that any certificate of the authority, such as a server's, would be a login.
func forClients(cert *x509.Certificate) bool {
	return slices.ContainsFunc(cert.ExtKeyUsage, func(u x509.ExtKeyUsage) bool { return u == x509.ExtKeyUsageClientAuth || u == x509.ExtKeyUsageAny })
}

// namesOf are the names that a certificate may be known by. Of several common
// names it is not clear which one counts, so none does.
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

const maxDescribed = 10 // names of a certificate

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
