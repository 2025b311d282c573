package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// TLS selects the server's certificate: two files, a self-signed certificate, or none.
type TLS struct {
	CertFile          string `yaml:"cert_file"`
	KeyFile           string `yaml:"key_file"`
	SelfSignedDir     string `yaml:"self_signed_dir"`
	InsecurePlaintext bool   `yaml:"insecure_plaintext"`
	ClientCAFile      string `yaml:"client_ca_file"`
	ClientCRLFile     string `yaml:"client_crl_file"`
	ClientAuth        string `yaml:"client_auth"`

	// Protocol decodes MinVersion and CipherSuites.
	MinVersion   string   `yaml:"min_version"`
	CipherSuites []string `yaml:"cipher_suites"`
}

// These are the values of tls.client_auth.
const (
	ClientAuthOptional = "optional"
	ClientAuthRequired = "required"
)

func (t *TLS) validateClients() error {
	switch {
	case t.ClientCAFile == "" && t.ClientAuth != "":
		return errors.New("tls: client_auth needs client_ca_file, the authorities that sign client certificates")
	case t.ClientCAFile == "" && t.ClientCRLFile != "":
		return errors.New("tls: client_crl_file needs client_ca_file, the authorities that sign client certificates")
	case t.ClientCAFile != "" && t.InsecurePlaintext:
		return errors.New("tls: client certificates need TLS: remove client_ca_file or insecure_plaintext")
	case t.ClientAuth != "" && t.ClientAuth != ClientAuthOptional && t.ClientAuth != ClientAuthRequired:
		return errors.New("tls: client_auth must be optional or required")
	}
	return nil
}

// versions are the values of tls.min_version; the default is 1.2.
var versions = map[string]uint16{"": tls.VersionTLS12, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Protocol returns the minimum TLS version, and the cipher suites for TLS 1.2. If suites is nil, Go
// chooses them.
func (t *TLS) Protocol() (minVersion uint16, suites []uint16, err error) {
	minVersion, known := versions[t.MinVersion]
	switch {
	case !known:
		return 0, nil, errors.New(`tls: min_version must be "1.2" or "1.3"`)
	case t.InsecurePlaintext && (t.MinVersion != "" || t.CipherSuites != nil):
		return 0, nil, errors.New("tls: min_version and cipher_suites have no effect without TLS: remove them or insecure_plaintext")
	case minVersion == tls.VersionTLS13 && t.CipherSuites != nil:
		return 0, nil, errors.New("tls: cipher_suites is only for TLS 1.2, because all suites of TLS 1.3 are secure: remove it or min_version")
	}
	secure := map[string]uint16{}
	for _, s := range tls.CipherSuites() {
		if slices.Contains(s.SupportedVersions, tls.VersionTLS12) {
			secure[s.Name] = s.ID
		}
	}
	for _, name := range t.CipherSuites {
		id, ok := secure[name]
		if !ok {
			return 0, nil, fmt.Errorf("tls: cipher_suites: %q is not a secure TLS 1.2 cipher suite: choose from %s", name, strings.Join(slices.Sorted(maps.Keys(secure)), ", "))
		}
		suites = append(suites, id)
	}
	if t.CipherSuites != nil && suites == nil {
		return 0, nil, errors.New("tls: cipher_suites is empty: remove it, or name at least one suite")
	}
	return minVersion, suites, nil
}
