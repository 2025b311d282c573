package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// configs holds the configurations that the proxy reloads in turn: two valid ones with different
// certificates and roles, and an invalid one.
type configs struct {
	path      string
	authority *x509.Certificate
	texts     []string
	invalid   int // index of the configuration that must be refused
}

func (c *configs) make(w *testbed) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if c.authority, err = certificate(w, "authority", nil, key, key); err != nil {
		return err
	}
	for _, name := range []string{"one", "two"} {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		if _, err := certificate(w, name, c.authority, own, key); err != nil {
			return err
		}
	}
	c.path = filepath.Join(w.dir, "spdk-proxy.yaml")
	users, tenants := "", ""
	for _, t := range w.tenantsOf {
		hash, err := hashOf(t.user)
		if err != nil {
			return err
		}
		users += fmt.Sprintf("  - {name: %s, password_hash: %q, roles: [volumes], tenant: %s}\n", t.user, hash, t.name)
		tenants += fmt.Sprintf("  %s: {lvstores: [%s], nqn_prefixes: [\"nqn.2026-11.io.spdkgate.soak:%s-\"], quota: {gib: 10}}\n", t.name, t.lvstore(), t.name)
	}
	others := map[string]string{flooder: "roles: [watching]", hostileUser: "roles: [volumes], tenant: " + w.tenantsOf[0].name}
	for i := range crowdUsers {
		others[crowdUser(i)] = "roles: [volumes], tenant: " + w.tenantOfCrowd(i).name
	}
	for user, rights := range others {
		hash, err := hashOf(user)
		if err != nil {
			return err
		}
		users += fmt.Sprintf("  - {name: %s, password_hash: %q, %s}\n", user, hash, rights)
	}
	text := fmt.Sprintf(`listen: %q
tls: {cert_file: one.crt, key_file: one.key}
target: {socket: %q, max_in_flight: 256, accept_loading_what_hosts_write: true} # no host writes
limits: {read: 3s, idle: 20s}
metrics: {listen: %q}
users:
%sroles:
  volumes: {allow: [spdk_get_version, "bdev_lvol_*", bdev_get_bdevs, "nvmf_*"], deny: ["bdev_lvol_*_lvstore"]}
  watching: {allow: [bdev_get_bdevs]}
tenants:
%s`, w.address, w.socket, w.metrics, users, tenants)
	c.texts = []string{
		text,
		strings.NewReplacer("one.", "two.", "allow: [bdev_get_bdevs]", `allow: ["bdev_get_*"]`).Replace(text),
		strings.Replace(text, "roles: [watching]", "roles: [wathcing]", 1),
	}
	c.invalid = 2
	return c.put(0)
}

// put replaces the configuration file atomically.
func (c *configs) put(i int) error {
	if err := os.WriteFile(c.path+".new", []byte(c.texts[i]), 0o600); err != nil {
		return err
	}
	return os.Rename(c.path+".new", c.path)
}

// reloadProxy gives the proxy its next configuration. Every other time, it not only changes the
// file, but also sends the signal.
func (w *testbed) reloadProxy() error {
	n := int(w.reloads.Add(1))
	i := n % len(w.configs.texts)
	if err := w.configs.put(i); err != nil {
		return err
	}
	if i == w.configs.invalid {
		w.refusals.Add(1)
	}
	if n%2 == 0 {
		return w.proxy.cmd.Process.Signal(syscall.SIGHUP)
	}
	return nil
}

func hashOf(user string) (string, error) {
	hash, err := bcrypt.GenerateFromPassword([]byte(passwordOf(user)), bcrypt.MinCost)
	return string(hash), err
}

// certificate writes NAME.crt and NAME.key. Without a parent, it creates an authority.
func certificate(w *testbed, name string, parent *x509.Certificate, own, signer *ecdsa.PrivateKey) (*x509.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "soak " + name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 2, 0),
		BasicConstraintsValid: true, IsCA: parent == nil, KeyUsage: x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if parent == nil {
		parent, template.KeyUsage = template, x509.KeyUsageCertSign
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &own.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(w.dir, name)
	if err := errors.Join(
		os.WriteFile(path+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(path+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
	); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
