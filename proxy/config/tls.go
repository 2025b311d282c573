package config

import "errors"

// TLS says which certificate the server uses: that of two files, a self-signed one, or none.
type TLS struct {
	CertFile          string `yaml:"cert_file"`
	KeyFile           string `yaml:"key_file"`
	SelfSignedDir     string `yaml:"self_signed_dir"`
	InsecurePlaintext bool   `yaml:"insecure_plaintext"`
	ClientCAFile      string `yaml:"client_ca_file"`
	ClientAuth        string `yaml:"client_auth"`
}

// Values of tls.client_auth.
const (
	ClientAuthOptional = "optional"
	ClientAuthRequired = "required"
)

func (t *TLS) validateClients() error {
	switch {
	case t.ClientCAFile == "" && t.ClientAuth != "":
		return errors.New("tls: client_auth needs client_ca_file, the authorities that sign client certificates")
	case t.ClientCAFile != "" && t.InsecurePlaintext:
		return errors.New("tls: client certificates need TLS: remove client_ca_file or insecure_plaintext")
	case t.ClientAuth != "" && t.ClientAuth != ClientAuthOptional && t.ClientAuth != ClientAuthRequired:
		return errors.New("tls: client_auth must be optional or required")
	}
	return nil
}
