package doctor_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A refusingCaller fails every call with the same error.
type refusingCaller struct{ err spdkrpc.Error }

func (c refusingCaller) Call(_ context.Context, method string, _, _ any) error {
	err := c.err
	err.Method = method
	return &err
}

func refusing(name string, err spdkrpc.Error) doctor.Target {
	c := volume.NewTarget(volume.Config{Config: export.Config{Name: name, Transport: export.TCP}, Stores: []string{"lvs0"}})
	return doctor.Target{Service: c.Service(spdkrpc.NewClient(refusingCaller{err})), URL: "https://storage:9009", Account: `the user name "csi" and its password`, CAFile: "/etc/ca/ca.crt"}
}

// If a target refuses the driver's credentials, or if the driver does not trust the target's
// certificate, one reading is enough to report the problem, even without a list of volumes.
func TestRefusalsAreReportedImmediately(t *testing.T) {
	simulatedOnly(t)
	untrusted := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	for name, c := range map[string]struct {
		err           spdkrpc.Error
		kind          doctor.Kind
		says, command []string
	}{
		"wrong password": {
			spdkrpc.Error{Kind: spdkrpc.Denied, Code: jsonrpc.CodeUnauthorized, Message: "authentication failed"}, doctor.CredentialsRefused,
			[]string{`the target's proxy refused the user name "csi" and its password, which the controller's secret.json contains for this target`, "authentication failed"}, []string{"rpcTokens of secret.json", "spdk-proxy call"},
		},
		"too many failed logins": {
			spdkrpc.Error{Kind: spdkrpc.Unreachable, Code: jsonrpc.CodeTooManyLogins}, doctor.CredentialsRefused, []string{`the user name "csi" and its password`}, []string{"rpcTokens of secret.json"},
		},
		"unknown authority": {
			spdkrpc.Error{Kind: spdkrpc.Unreachable, Err: untrusted}, doctor.CertificateUntrusted, []string{"caFile is /etc/ca/ca.crt", "certificate signed by unknown authority"}, []string{"caFile or ca (in the chart: ca.certificates)", "https://storage:9009"},
		},
		"forbidden method": {
			spdkrpc.Error{Kind: spdkrpc.Denied, Code: jsonrpc.CodeForbidden}, doctor.Denied, []string{`accepts the user name "csi" and its password, but does not allow`}, []string{"the role csi-controller"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := doctor.Examination{
				Targets: []doctor.Target{refusing("t0", c.err)}, Timeout: examinationOf().Timeout,
				Wait:  func(context.Context) error { t.Error("it waits"); return nil },
				Known: func() (*doctor.Known, error) { t.Error("it reads the list"); return nil, nil },
			}
			found := run(t, e)
			require.Len(t, found, 1)
			assert.Equal(t, c.kind, found[0].Kind)
			assert.Equal(t, "target t0", found[0].Object)
			assert.Empty(t, found[0].Repair)
			for _, text := range c.says {
				assert.Contains(t, found[0].Problem, text)
			}
			for _, text := range c.command {
				assert.Contains(t, found[0].Command, text)
			}
		})
	}
}

// Doctor reports a target's refusal before the second reading, which only findings on other targets
// need.
func TestRefusalIsReportedBeforeOtherFindings(t *testing.T) {
	simulatedOnly(t)
	f := newFixture(t, export.TCP)
	require.NoError(t, f.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(uuid.NewString())}))
	e := f.examination()
	e.Targets = append(e.Targets, refusing("t1", spdkrpc.Error{Kind: spdkrpc.Denied, Code: jsonrpc.CodeUnauthorized}))
	var early []doctor.Finding
	waited := false
	e.Early = func(found []doctor.Finding) { assert.False(t, waited); early = found }
	e.Wait = func(context.Context) error { waited = true; return nil }
	found := run(t, e)
	require.True(t, waited)
	require.Len(t, early, 1)
	assert.Equal(t, doctor.CredentialsRefused, early[0].Kind)
	require.Len(t, found, 2)
	assert.Equal(t, []doctor.Kind{doctor.LeakedExport, doctor.CredentialsRefused}, []doctor.Kind{found[0].Kind, found[1].Kind})

	read := false
	e.Known = func() (*doctor.Known, error) { read = true; return &doctor.Known{}, nil }
	e.Early = nil
	run(t, e)
	assert.True(t, read, "the list is read for the target that responds")
}
