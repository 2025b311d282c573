package storage

import (
	"context"
	"crypto/x509"
	"os"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Authorities returns the authorities in a PEM-encoded string.
func Authorities(pem string) *x509.CertPool {
	p := x509.NewCertPool()
	// if it contains no certificate, connections fail and report this
	p.AppendCertsFromPEM([]byte(pem))
	return p
}

// Objects returns the names of the logical volumes and exports on the target. If there are no
// volumes, it returns an empty list.
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

// Remove deletes an object that Objects has listed.
func (s *Server) Remove(ctx context.Context, object string) error {
	if nqn, ok := strings.CutPrefix(object, "subsystem "); ok {
		return s.rpc.NVMfDeleteSubsystem(ctx, spdkrpc.NVMfDeleteSubsystemParams{NQN: nqn})
	}
	return s.DeleteVolume(ctx, strings.TrimPrefix(object, "lvol "))
}

// IOPS returns the limit on a volume's I/O operations per second; 0 means none.
func (s *Server) IOPS(ctx context.Context, uuid string) (uint64, error) {
	bdevs, err := s.rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: &uuid})
	if err != nil {
		return 0, err
	}
	return bdevs[0].AssignedRateLimits.RWIOsPerSec, nil
}

// CreateVolume creates a volume without the driver, and returns its UUID.
func (s *Server) CreateVolume(ctx context.Context, name string, mib uint64) (string, error) {
	uuid, err := s.rpc.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{LvolName: name, SizeInMiB: mib, LvsName: new(lvstore), ThinProvision: new(true)})
	return string(uuid), err
}

func nqnOf(uuid string) string { return "nqn.2020-04.io.spdk.csi:uuid:" + uuid }

// ExportAsSPDKCSI exports a volume as SPDK's spdk-csi does: to every host, and with a namespace
// UUID that is not the volume's.
func (s *Server) ExportAsSPDKCSI(ctx context.Context, uuid string) (nqn string, err error) {
	nqn = nqnOf(uuid)
	if err := s.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: nqn, AllowAnyHost: new(true), SerialNumber: new("spdkcsi-sn"), ModelNumber: &uuid}); err != nil {
		return "", err
	}
	_, err = s.rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{NQN: nqn, Namespace: spdkrpc.NVMfNamespaceParams{BdevName: uuid}})
	return nqn, err
}

// AdmitsEverybody reports whether a volume's export admits every host.
func (s *Server) AdmitsEverybody(ctx context.Context, uuid string) (bool, error) {
	subsystems, err := s.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{NQN: new(nqnOf(uuid))})
	if err != nil {
		return false, err
	}
	return subsystems[0].AllowAnyHost, nil
}

// DeleteVolume deletes a volume, which must exist and not be exported.
func (s *Server) DeleteVolume(ctx context.Context, uuid string) error {
	return s.rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: uuid})
}

// Calls returns the number of a user's calls that the proxy has logged.
func (s *Server) Calls(user string) (int, error) {
	text, err := os.ReadFile(s.options.Log)
	return strings.Count(string(text), `"user":"`+user+`"`), err
}
