package controller

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// targetError adds the target's name to the error of a failed call, and a cause that is the same
// for each retry. Kubernetes counts events with the same text, and shows each different text as a
// new event. The cause must therefore contain no local port and no time. It must not contain the
// method either, because any of several concurrent calls may fail first. Errors about the call
// rather than the target are returned unchanged. host is the proxy's host.
func targetError(target, host string, err error) error {
	var e *spdkrpc.Error
	if !errors.As(err, &e) || errors.Is(e.Err, context.Canceled) {
		return err
	}
	named := &request.TargetError{Target: target, Err: err}
	lost := errors.Is(err, spdkrpc.Unreachable) || errors.Is(err, spdkrpc.OutcomeUnknown)
	switch {
	case e.Code == jsonrpc.CodeTooManyLogins:
		named.Cause = fmt.Sprintf("credentials refused: after too many failed logins, the proxy checks no credentials for some time (code %d)", e.Code)
	case errors.Is(err, spdkrpc.ErrCredentials):
		named.Cause = fmt.Sprintf("credentials refused: %s (code %d)", e.Message, e.Code)
	case !lost || e.Code == jsonrpc.CodeTooMany:
		return err
	case e.Code != 0:
		named.Cause = fmt.Sprintf("%s: %s (code %d)", e.Kind, e.Message, e.Code)
	case e.Err != nil:
		named.Lost, named.Cause = true, fmt.Sprintf("unreachable: %s (%s)", cause(e.Err), host)
	}
	return named
}

// cause describes why a connection failed, in a string that does not depend on the time or on
// connection details.
func cause(err error) string {
	var (
		timeout interface{ Timeout() bool }
		invalid x509.CertificateInvalidError
		unknown *net.DNSError
		network *net.OpError
	)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "connection closed by the proxy or the network"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to the host"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("the certificate is valid only from %s until %s", invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return "no such host name"
	case errors.As(err, &unknown):
		return "the host name cannot be resolved now"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no response in time"
	case errors.As(err, &network):
		return network.Op + ": " + network.Err.Error() // without the addresses
	}
	return err.Error()
}
