package storage

import (
	"context"
	"crypto/x509"
	"os"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// CA returns the certificate of the proxy.
func (s *Server) CA() (string, error) {
	text, err := os.ReadFile(s.path("tls/tls.crt"))
	return string(text), err
}

func pool(pem string) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM([]byte(pem)) // without a certificate in it, connections fail and say so
	return p
}

// Objects returns the names of the logical volumes and exports on the target. Without volumes there are none.
func (s *Server) Objects(ctx context.Context) ([]string, error) {
	lvols, err := s.rpc.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
	if err != nil {
		return nil, err
	}
	subsystems, err := s.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
	if err != nil {
		return nil, err
	}
	var found []string
	for _, l := range lvols {
		found = append(found, "lvol "+l.Alias)
	}
	for _, sub := range subsystems {
		if sub.Subtype == "NVMe" {
			found = append(found, "subsystem "+sub.NQN)
		}
	}
	return found, nil
}
