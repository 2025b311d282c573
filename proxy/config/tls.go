package config

import "errors"

// TLS says which certificate to show: that of two files, or else a
// self-signed one; or none at all.
type TLS struct {
	CertFile          string `yaml:"cert_file"`
	KeyFile           string `yaml:"key_file"`
	SelfSignedDir     string `yaml:"self_signed_dir"`
	InsecurePlaintext bool   `yaml:"insecure_plaintext"`
	ClientCAFile      string `yaml:"client_ca_file"`
	ClientAuth        string `yaml:"client_auth"`
}

// What tls.client_auth may be.
const (
	ClientAuthOptional = "optional"
	ClientAuthRequired = "required"
)

func (t *TLS) validateClients() error {
	switch {
	case t.ClientCAFile == "" && t.ClientAuth != "":
		return errors.New("tls: client_auth needs client_ca_file: the authorities that vouch for client certificates")
	case t.ClientCAFile != "" && t.InsecurePlaintext:
		return errors.New("tls: with insecure_plaintext nobody can show a certificate: take client_ca_file away, or have TLS")
	case t.ClientAuth != "" && t.ClientAuth != ClientAuthOptional && t.ClientAuth != ClientAuthRequired:
		return errors.New("tls: client_auth must be optional or required")
	}
	return nil
}
