package driver

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/luks"
	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/mkfs"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/driver/witness"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// codesOf maps errors to gRPC codes, following the tables in the CSI specification. There is no
// other such table. The first match wins. Callers that receive ABORTED, UNAVAILABLE or
// DEADLINE_EXCEEDED retry, and assume that the call may still be running. Errors that a retry
// cannot resolve must not map to these codes.
var codesOf = []struct {
	kind error
	code codes.Code
}{
	{request.ErrLeftBehind, codes.Aborted}, // regardless of the cause; see failedStage in package node
	{context.Canceled, codes.Canceled},
	{request.ErrNoSuchID, codes.NotFound},
	{request.ErrNoSuchPath, codes.NotFound},
	{request.ErrInvalid, codes.InvalidArgument},
	{class.ErrParameter, codes.InvalidArgument},
	{request.ErrCredentials, codes.InvalidArgument},
	{request.ErrUnsupported, codes.InvalidArgument},
	{hostauth.ErrMalformed, codes.InvalidArgument},
	{hostauth.ErrMissing, codes.FailedPrecondition},
	{luks.ErrMalformed, codes.InvalidArgument},
	{mkfs.ErrOption, codes.InvalidArgument},
	{luks.ErrInvalid, codes.InvalidArgument},
	{volume.ErrWrongKind, codes.InvalidArgument},
	{volume.ErrMember, codes.InvalidArgument},
	{volume.ErrMismatch, codes.InvalidArgument},
	{connect.ErrInvalidExport, codes.InvalidArgument},
	{mount.ErrInvalid, codes.InvalidArgument},
	{volume.ErrNotFound, codes.NotFound},
	{volume.ErrIncompatible, codes.AlreadyExists},
	{request.ErrConflict, codes.AlreadyExists},
	{mount.ErrConflict, codes.AlreadyExists},
	{volume.ErrNoSpace, codes.ResourceExhausted},
	{placement.ErrNoTopology, codes.ResourceExhausted},
	{volume.ErrOutOfRange, codes.OutOfRange},
	{volume.ErrInUse, codes.FailedPrecondition},
	{volume.ErrTooDeep, codes.ResourceExhausted},
	{spdkrpc.InUse, codes.FailedPrecondition},
	{export.ErrNotShareable, codes.InvalidArgument},
	{export.ErrNoAuthentication, codes.FailedPrecondition},
	{export.ErrFenced, codes.FailedPrecondition},
	{export.ErrForeign, codes.FailedPrecondition},
	{volume.ErrExposes, codes.FailedPrecondition},
	{volume.ErrTooOld, codes.FailedPrecondition},
	{volume.ErrNotTogether, codes.FailedPrecondition},
	{volume.ErrStoreForbidden, codes.FailedPrecondition},
	{volume.ErrNested, codes.FailedPrecondition},
	{volume.ErrLoads, codes.FailedPrecondition},
	{volume.ErrNoChanges, codes.FailedPrecondition},
	{volume.ErrEncrypted, codes.FailedPrecondition},
	{request.ErrUnknownTarget, codes.FailedPrecondition},
	{request.ErrNoCredentials, codes.FailedPrecondition},
	{request.ErrElsewhere, codes.FailedPrecondition},
	{request.ErrNotStaged, codes.FailedPrecondition},
	{mount.ErrUnsupported, codes.FailedPrecondition},
	{mount.ErrEmptyDevice, codes.FailedPrecondition},
	{mount.ErrHoldsData, codes.FailedPrecondition},
	{mount.ErrWrongFilesystem, codes.FailedPrecondition},
	{mount.ErrDamaged, codes.FailedPrecondition},
	{mount.ErrNotEmpty, codes.FailedPrecondition},
	{mount.ErrNotMounted, codes.FailedPrecondition},
	{luks.ErrUnsupported, codes.FailedPrecondition},
	{luks.ErrNoPassphrase, codes.FailedPrecondition},
	{luks.ErrWrongPassphrase, codes.FailedPrecondition},
	{luks.ErrNotEncrypted, codes.FailedPrecondition},
	{luks.ErrEmpty, codes.FailedPrecondition},
	{luks.ErrNotOpen, codes.FailedPrecondition},
	{connect.ErrUnsupported, codes.FailedPrecondition},
	{connect.ErrNoSubsystem, codes.FailedPrecondition},
	{connect.ErrRefused, codes.FailedPrecondition},
	{connect.ErrNoKeys, codes.FailedPrecondition},
	{connect.ErrAuthentication, codes.FailedPrecondition},
	{connect.ErrNoNamespace, codes.FailedPrecondition},
	{connect.ErrNotConnected, codes.FailedPrecondition},
	{witness.ErrNotInstalled, codes.FailedPrecondition},
	{witness.ErrOlder, codes.FailedPrecondition},
	{witness.ErrReplaced, codes.FailedPrecondition},
	{witness.ErrAltered, codes.FailedPrecondition},
	{witness.ErrUnreadable, codes.FailedPrecondition},
	{witness.ErrInUse, codes.FailedPrecondition},
	{witness.ErrNotFound, codes.NotFound},
	{witness.ErrDeleting, codes.Aborted},
	{replica.ErrFenced, codes.FailedPrecondition},
	{mirror.ErrUnsupported, codes.FailedPrecondition},
	{mirror.ErrRefused, codes.FailedPrecondition},
	{mirror.ErrInvalid, codes.InvalidArgument},
	{mirror.ErrBusy, codes.Aborted},
	{mirror.ErrWait, codes.Unavailable},
	{mirror.ErrUnreachable, codes.Unavailable},
	{export.ErrNotReplicable, codes.InvalidArgument},
	{request.ErrNoReplica, codes.Unavailable},
	{request.ErrWitness, codes.Unavailable},
	{request.ErrBadToken, codes.Aborted},
	{request.ErrInFlight, codes.Aborted},
	{volume.ErrBusy, codes.Aborted},
	{mount.ErrBusy, codes.Aborted},
	{luks.ErrBusy, codes.Aborted},
	{connect.ErrBusy, codes.Aborted},
	{volume.ErrStoreMissing, codes.Unavailable},
	{volume.ErrDropped, codes.Unavailable},
	{volume.ErrDegraded, codes.Unavailable},
	{volume.ErrReadError, codes.Unavailable},
	{mount.ErrBroken, codes.Unavailable},
	{connect.ErrUnreachable, codes.Unavailable},
	{connect.ErrTimeout, codes.DeadlineExceeded},
	{connect.ErrAmbiguous, codes.Internal},
	{mount.ErrUnreadable, codes.Unavailable},
	// These are the kinds of failed calls to a target.
	{spdkrpc.ErrCredentials, codes.Unauthenticated},
	{spdkrpc.OutcomeUnknown, codes.Aborted},
	{spdkrpc.Busy, codes.Aborted},
	{spdkrpc.Unreachable, codes.Unavailable},
	{spdkrpc.WrongState, codes.Unavailable},
	{spdkrpc.NotSaved, codes.Unavailable},
	{spdkrpc.Denied, codes.PermissionDenied},
	{spdkrpc.MethodNotFound, codes.FailedPrecondition},
	{spdkrpc.NoSpace, codes.ResourceExhausted},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
}

// Code returns the gRPC code for an error from this package or the packages below it.
func Code(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	if lostTarget(err) != nil {
		return codes.Unavailable
	}
	for _, c := range codesOf {
		if errors.Is(err, c.kind) {
			return c.code
		}
	}
	return codes.Internal
}

// remedies contains the advice for errors of packages that know nothing about the configuration.
var remedies = []struct {
	kind error
	text string
}{
	{spdkrpc.ErrCertificate, "check that the target's caFile or ca in config.json has the authority that issued the proxy's certificate (in the chart: ca.certificates), and that the certificate is for the host in rpcURL"},
	{spdkrpc.ErrCredentials, "the proxy refused the name and password, or the token, of the target's entry in rpcTokens of secret.json: correct it in the Secret that the class names or in the controller's (in the chart: credentials), or correct the user in the proxy's configuration"},
	{spdkrpc.Denied, "check the target's entry in rpcTokens, and the user's role in the proxy's configuration"},
	{spdkrpc.Unreachable, "check that the target's rpcURL is right, and that the proxy and spdk_tgt run there"},
	{spdkrpc.MethodNotFound, "the target runs an SPDK release without this method: v23.05 or later is needed"},
}

// Status returns an error as a gRPC status, with its text and, if there is one, the remedy.
// Kubernetes shows the text in an event, and counts events with identical text. The text for a
// target failure therefore contains only the target and the cause; the log contains the details.
func Status(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if t := failedTarget(err); t != nil {
		return status.Error(Code(err), withRemedy("target "+t.Target+": "+t.Cause, err))
	}
	return status.Error(Code(err), withRemedy(err.Error(), err))
}

// logText returns the complete text of an error, including the remedy.
func logText(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return withRemedy(err.Error(), err)
}

func withRemedy(text string, err error) string {
	var e *spdkrpc.Error
	if errors.As(err, &e) && e.Code == jsonrpc.CodeTooMany { // the message already contains a remedy
		return text
	}
	lost := lostTarget(err) != nil
	for _, r := range remedies {
		if errors.Is(err, r.kind) || lost && r.kind == error(spdkrpc.Unreachable) {
			return text + ": " + r.text
		}
	}
	return text
}

// failedTarget returns the target failure that determines an error's code. It returns nil if there
// is no target failure, or if the text of the error itself is needed to understand it.
func failedTarget(err error) *request.TargetError {
	var t *request.TargetError
	if !errors.As(err, &t) || t.Cause == "" {
		return nil
	}
	for _, c := range codesOf {
		if errors.Is(err, c.kind) {
			if slices.Contains([]error{spdkrpc.ErrCredentials, spdkrpc.OutcomeUnknown, spdkrpc.Unreachable}, c.kind) {
				return t
			}
			return nil
		}
	}
	return nil
}

// lostTarget is like failedTarget, but only for targets that could not be reached or did not
// respond. Any of several concurrent calls may fail first. The choice must make no difference to
// callers, because they retry all of these calls.
func lostTarget(err error) *request.TargetError {
	if t := failedTarget(err); t != nil && t.Lost {
		return t
	}
	return nil
}
