package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// These are the users of the API. Each user has its own token.
const (
	admin      = "admin"
	controller = "controller-manager"
	scheduler  = "scheduler"
)

// groups holds each user's name and groups in the API. Each node is also a user of the API.
var groups = map[string][2]string{
	admin:      {"admin", "system:masters"},
	controller: {"system:kube-controller-manager", ""},
	scheduler:  {"system:kube-scheduler", ""},
}

// An authority signs certificates.
type authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// newAuthority creates a certificate authority and a cluster's certificates, keys and tokens in a
// directory.
func newAuthority(dir string, nodes []*Node) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &authority{dir: dir}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	a.cert = &x509.Certificate{
		Subject: pkix.Name{CommonName: "sandbox"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if err := a.issue("ca", a.cert, a.key); err != nil {
		return nil, err
	}
	for name, cert := range map[string]*x509.Certificate{
		"apiserver": {
			Subject: pkix.Name{CommonName: "kube-apiserver"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default.svc"},
			IPAddresses: []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP(ServiceAddress), net.ParseIP(Address)},
		},
		"kubelet-client": {
			Subject: pkix.Name{CommonName: "kube-apiserver", Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		},
		"service-accounts": {Subject: pkix.Name{CommonName: "service-accounts"}},
	} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		if err := a.issue(name, cert, key); err != nil {
			return nil, err
		}
	}
	return a, a.writeTokens(nodes)
}

// issue signs a certificate and writes it and its key to NAME.crt and NAME.key.
func (a *authority) issue(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		return err
	}
	cert.SerialNumber, cert.NotBefore, cert.NotAfter = serial, time.Now().Add(-time.Hour), time.Now().AddDate(0, 0, 2)
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(a.path(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(a.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600)
}

// ServerCertificate issues a certificate for a server at an address. It returns the files with the
// certificate, its key, and the authority's certificate.
func (c *Cluster) ServerCertificate(name, address string) (certificate, key, ca string, err error) {
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", "", err
	}
	cert := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.ParseIP(address)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	return c.pki.path(name + ".crt"), c.pki.path(name + ".key"), c.pki.path("ca.crt"), c.pki.issue(name, cert, secret)
}

// writeTokens writes the apiserver's list of tokens, and a kubeconfig for each user.
func (a *authority) writeTokens(nodes []*Node) error {
	var list strings.Builder
	users := maps.Clone(groups)
	for _, n := range nodes {
		users[n.Name] = [2]string{"system:node:" + n.Name, "system:nodes"}
	}
	for user, as := range users {
		token := rand.Text()
		fmt.Fprintf(&list, "%s,%s,%s,%q\n", token, as[0], user, as[1])
		config := fmt.Sprintf(kubeconfig, a.path("ca.crt"), token)
		if err := os.WriteFile(a.path(user+".kubeconfig"), []byte(config), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(a.path("tokens.csv"), []byte(list.String()), 0o600)
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: sandbox
clusters:
  - name: sandbox
    cluster: {server: "https://` + ServiceAddress + `:443", certificate-authority: %q}
users:
  - name: sandbox
    user: {token: %q}
contexts:
  - name: sandbox
    context: {cluster: sandbox, user: sandbox}
`
