package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/keys"
	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Errors that arise in the server itself.
var (
	errDenied = errors.New("denied by policy")
	// errDeniedParams means that the method is allowed with other parameters.
	errDeniedParams = errors.New("denied by policy with these parameters")
	errCrossOrigin  = errors.New("a web page of another site made a browser send this request")
	errCSRF         = errors.New("the request does not have its session's CSRF token")
	errSessionEnded = errors.New("the session has ended")
	errDraining     = errors.New("the proxy is stopping")
	errSlowBody     = errors.New("the request did not arrive in time")
	errGone         = errors.New("the client disconnected before its request had arrived")
	errPanic        = errors.New("the proxy failed during this call")

	errStreams = errors.New("too many event streams are open")

	errBatchResults = errors.New("the results of the batch are too large")
)

// statusClientGone is the status in the log if the client has disconnected.
const statusClientGone = 499

// An answer is the status and the error that a client gets.
type answer struct {
	status     int
	err        *jsonrpc.Error // nil: the result
	spdk       bool           // the error is SPDK's own
	retryAfter time.Duration
}

// answerTo converts the error of any stage to an answer; no other code does so.
// SPDK's own errors have status 200 and are exactly as SPDK gave them; all others
// say what to do.
func answerTo(err error) answer {
	var (
		slow       *authn.TooManyFailuresError
		rejected   *authn.RejectedError
		tooLong    *http.MaxBytesError
		malformed  *jsonrpc.Error
		unknown    *rpcschema.UnknownMethodError
		invalid    rpcschema.Violations
		down       *target.DownError
		busy       *target.BusyError
		called     *spdkrpc.Error
		foreign    *tenancy.Refusal
		exceeded   *tenancy.QuotaError
		notOffered *notOfferedError
		key        *keys.Refusal
		inUse      *quiesce.InUseError
		freezing   *quiesce.BusyError
		taken      *quiesce.ExistsError
		unexpected *quiesce.AnswerError
		noClient   *noClientError
		tooFast    *rateError
		notSaved   *persist.NotSavedError
	)
	refuse := func(status, code int, format string, args ...any) answer {
		return answer{status: status, err: jsonrpc.Errorf(code, format, args...)}
	}
	wait := func(d time.Duration, a answer) answer { a.retryAfter = d; return a }
	switch {
	case err == nil:
		return answer{status: http.StatusOK}
	case errors.As(err, &notSaved): // whatever the cause was
		return refuse(http.StatusInternalServerError, jsonrpc.CodeNotSaved, "the target did it, but %s. A restart of the target would undo it. Repeat the call; if the error stays, see the proxy's log.", notSaved)

	case errors.As(err, &rejected):
		return refuse(http.StatusUnauthorized, jsonrpc.CodeUnauthorized, "authentication failed: %s", rejected.Reason)
	case errors.Is(err, authn.ErrWrongCredentials):
		return refuse(http.StatusUnauthorized, jsonrpc.CodeUnauthorized, "authentication failed: the credentials that were sent are not those of a user of this proxy: correct the name, password or token")
	case errors.Is(err, authn.ErrNoCredentials):
		return refuse(http.StatusUnauthorized, jsonrpc.CodeUnauthorized, "authentication failed: send the name and password of a user of this proxy (HTTP Basic authentication) or, if the proxy accepts them, a user's bearer token or client certificate")
	case errors.Is(err, authn.ErrCannotTell):
		return wait(5*time.Second, refuse(http.StatusServiceUnavailable, jsonrpc.CodeUnreachable, "cannot verify this token: its issuer's signing keys are unavailable. Nothing was executed; retry."))
	case errors.As(err, &slow):
		return wait(slow.RetryAfter, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "too many failed logins: wait %s, then send the right credentials", slow.RetryAfter))
	case errors.Is(err, authn.ErrBusy):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "too many logins at once. Nothing was executed; retry."))

	case errors.As(err, &noClient):
		return refuse(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "%s. Nothing was executed; configure it to add the address at the end of that header.", noClient)
	case errors.Is(err, errSessionEnded), errors.Is(err, authn.ErrCredentialChanged):
		return refuse(http.StatusUnauthorized, jsonrpc.CodeUnauthorized, "the session has ended. Nothing was executed; sign in again.")
	case errors.Is(err, authn.ErrOtherConnection):
		return refuse(http.StatusUnauthorized, jsonrpc.CodeUnauthorized, "the session belongs to a client certificate that this connection does not have. Nothing was executed; send the certificate, or sign in again.")
	case errors.Is(err, errCSRF):
		return refuse(http.StatusForbidden, jsonrpc.CodeForbidden, "the request does not have its session's CSRF token (X-CSRF-Token). Nothing was executed; load the console again.")
	case errors.Is(err, errCrossOrigin):
		return refuse(http.StatusForbidden, jsonrpc.CodeForbidden, "a web page of another site made your browser send this call with your credentials. Nothing was executed; find out which page it was.")
	case errors.Is(err, errStreams):
		return wait(5*time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "too many event streams are open: close some, then retry"))
	case errors.Is(err, errDraining):
		return wait(time.Second, refuse(http.StatusServiceUnavailable, jsonrpc.CodeDraining, "the proxy is stopping. Nothing was executed; retry on a new connection."))
	case errors.As(err, &tooLong):
		return refuse(http.StatusRequestEntityTooLarge, jsonrpc.CodeTooLarge, "the request is larger than the limit of %d KiB: split it", tooLong.Limit>>10)
	case errors.Is(err, errSlowBody):
		return refuse(http.StatusRequestTimeout, jsonrpc.CodeInvalidRequest, "the request did not arrive in time: send it without pauses, with the right Content-Length")
	case errors.Is(err, errGone), errors.Is(err, target.ErrAbandoned), errors.Is(err, context.Canceled):
		return refuse(statusClientGone, jsonrpc.CodeUnreachable, "the client disconnected. Nothing was executed.")

	case errors.Is(err, errBatchResults):
		return refuse(http.StatusRequestEntityTooLarge, jsonrpc.CodeTooLarge, "the results of this batch exceed %d MiB. This call was not executed; send it in a separate request.", maxBatchResults>>20)
	case errors.As(err, &malformed) && malformed.Code == jsonrpc.CodeTooLarge:
		return answer{status: http.StatusRequestEntityTooLarge, err: malformed}
	case errors.As(err, &malformed):
		return answer{status: http.StatusBadRequest, err: malformed}
	case errors.As(err, &notOffered):
		return refuse(http.StatusBadRequest, jsonrpc.CodeMethodNotFound, "%s", notOffered)
	case errors.As(err, &key):
		return answer{status: http.StatusOK, spdk: true, err: jsonrpc.Errorf(-int(key.Errno), "%s", key)}
	case errors.As(err, &inUse):
		return refuse(http.StatusConflict, jsonrpc.CodeInUse, "%s", inUse)
	case errors.As(err, &freezing):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "%s. Nothing was executed; retry.", freezing.Why))
	case errors.As(err, &taken):
		return answer{status: http.StatusOK, spdk: true, err: jsonrpc.Errorf(-int(syscall.EEXIST), "%s", taken)}
	case errors.As(err, &unexpected):
		return refuse(http.StatusBadGateway, jsonrpc.CodeUnreachable, "%s. Nothing was executed. Run spdk-proxy schema drift to compare the target with the releases that this proxy knows.", unexpected)
	case errors.As(err, &unknown):
		return refuse(http.StatusBadRequest, jsonrpc.CodeMethodNotFound, "%s", unknown)
	case errors.Is(err, errDenied):
		return refuse(http.StatusForbidden, jsonrpc.CodeForbidden, "this user may not make this call: ask the administrator of this proxy for a role that allows it")
	case errors.Is(err, errDeniedParams):
		return refuse(http.StatusForbidden, jsonrpc.CodeForbidden, "this user may make this call, but not with these parameters: ask the administrator of this proxy which parameters its roles allow")
	case errors.As(err, &foreign):
		return refuse(http.StatusForbidden, jsonrpc.CodeForbidden, "this user may not make this call: %s", foreign.Reason)
	case errors.As(err, &exceeded):
		return refuse(http.StatusInsufficientStorage, -int(syscall.ENOSPC), "%s: delete something, or ask the administrator of this proxy for a larger quota", exceeded)
	case errors.Is(err, tenancy.ErrBusy):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "%s. Nothing was executed; retry.", tenancy.ErrBusy))
	case errors.As(err, &invalid):
		return refuse(http.StatusBadRequest, jsonrpc.CodeInvalidParams, "%s", invalid)

	case errors.Is(err, errMemory):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "memory limit for this user reached. Nothing was executed; read pending responses, or send fewer calls at once."))
	case errors.Is(err, target.ErrListing):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "%s (before v24.09). Nothing was executed; retry.", target.ErrListing))
	case errors.Is(err, target.ErrDeleting):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "%s (before v24.09). Nothing was executed; retry when the deletion has ended.", target.ErrDeleting))
	case errors.As(err, &tooFast):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "%s. Nothing was executed; send fewer calls, or retry.", tooFast))
	case errors.As(err, &busy) && busy.User:
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "too many calls of this user are running. Nothing was executed; send fewer at once, or retry."))
	case errors.As(err, &busy):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "too many calls are running. Nothing was executed; retry."))
	case errors.As(err, &down), errors.Is(err, spdkrpc.Unreachable):
		return wait(time.Second, refuse(http.StatusBadGateway, jsonrpc.CodeUnreachable, "the SPDK target is unreachable. Nothing was executed; check that spdk_tgt runs, then retry."))
	case errors.Is(err, spdkrpc.OutcomeUnknown):
		return refuse(http.StatusGatewayTimeout, jsonrpc.CodeOutcomeUnknown, "SPDK did not answer in time: the call may have been, or may still be, executed. Check the state before retrying.")
	case errors.As(err, &called) && called.Code == jsonrpc.CodeTooLarge:
		return refuse(http.StatusRequestEntityTooLarge, jsonrpc.CodeTooLarge, "the request is too large for this target's release: split it")
	case errors.As(err, &called) && called.Code != 0:
		return answer{status: http.StatusOK, spdk: true, err: &jsonrpc.Error{Code: called.Code, Message: called.Message}}
	}
	return refuse(http.StatusInternalServerError, jsonrpc.CodeInternalError, "the proxy failed during this call: see its log, under the id in X-Request-Id")
}

// A notOfferedError means that the configuration lacks the key that enables a method.
type notOfferedError struct{ method, key string }

func (e *notOfferedError) Error() string {
	return fmt.Sprintf("%s is not enabled, as the proxy's configuration has no %s: ask the administrator of this proxy", e.method, e.key)
}
