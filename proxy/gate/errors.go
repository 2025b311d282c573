package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/lvstore/changes"
	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/decide"
	"github.com/spdkgate/spdkgate/proxy/keys"
	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// These errors come from the stages that every request passes, and from their endpoints.
var (
	ErrCrossOrigin  = errors.New("a web page on another site made a browser send this request")
	ErrCSRF         = errors.New("the request lacks its session's CSRF token")
	ErrSessionEnded = errors.New("the session has ended")
	ErrDraining     = errors.New("the proxy is stopping")
	ErrSlowBody     = errors.New("the request did not arrive in time")
	ErrGone         = errors.New("the client disconnected before its request had arrived")
	ErrPanic        = errors.New("the proxy failed during this call")
	ErrStreams      = errors.New("too many streams are open")
)

// An unansweredReadError means that SPDK did not respond to a call that only reads.
type unansweredReadError struct{ error }

func (e *unansweredReadError) Unwrap() error { return e.error }

// StatusClientGone is the status that is logged if the client has disconnected.
const StatusClientGone = 499

// statusBusy is the status of errors caused by too many concurrent calls or too much memory.
const statusBusy = http.StatusTooManyRequests

// A row of the table defines how one kind of error appears to the client, in the log and in the
// metrics.
type row struct {
	name    string // the row's name in the manual
	kind    kind
	status  int
	code    int // JSON-RPC code; 0 means the error's own code
	outcome metrics.Outcome
	// login and denial are the metrics' reasons for failed authentication and for refused calls.
	login  metrics.LoginFailure
	denial metrics.Denial
	retry  time.Duration // value of Retry-After; 0 omits the header
	text   string        // text for the client; %s is replaced by the error's text
	fill   func(found error, a *Answer)
}

// A kind returns the first error of this kind in err's chain, or nil if there is none.
type kind func(err error) error

func is(kinds ...error) kind {
	return func(err error) error {
		for _, k := range kinds {
			if errors.Is(err, k) {
				return k
			}
		}
		return nil
	}
}

func as[T error](err error) error {
	if found, ok := errors.AsType[T](err); ok {
		return found
	}
	return nil
}

// when returns a kind that matches errors of type T for which holds returns true.
func when[T error](holds func(T) bool) kind {
	return func(err error) error {
		if found, ok := errors.AsType[T](err); ok && holds(found) {
			return found
		}
		return nil
	}
}

// rows is the table of errors. The first row whose kind matches an error determines the response.
// SPDK's own errors have status 200 and are passed on unchanged. All other errors tell the reader
// what to do.
var rows = []row{
	// whatever the reason why the save failed
	{name: "the target executed the call, but its configuration is not saved", kind: as[*persist.NotSavedError],
		status: http.StatusInternalServerError, code: jsonrpc.CodeNotSaved, outcome: metrics.Failed,
		text: "the target executed the call, but %s. A restart of the target would undo it. Repeat the call; if the error persists, see the proxy's log."},

	{name: "credentials that are not valid, such as an expired token", kind: as[*authn.RejectedError],
		status: http.StatusUnauthorized, code: jsonrpc.CodeUnauthorized, outcome: metrics.Unauthenticated, login: metrics.WrongCredentials,
		fill: func(found error, a *Answer) {
			a.Err.Message = "authentication failed: " + found.(*authn.RejectedError).Reason
		}},
	{name: "wrong credentials", kind: is(authn.ErrWrongCredentials),
		status: http.StatusUnauthorized, code: jsonrpc.CodeUnauthorized, outcome: metrics.Unauthenticated, login: metrics.WrongCredentials,
		text: "authentication failed: the credentials sent do not belong to a user of this proxy: correct the name, password or token"},
	{name: "no credentials", kind: is(authn.ErrNoCredentials),
		status: http.StatusUnauthorized, code: jsonrpc.CodeUnauthorized, outcome: metrics.Unauthenticated, login: metrics.NoCredentials,
		text: "authentication failed: send the name and password of a user of this proxy (HTTP Basic authentication) or, if the proxy accepts them, a user's bearer token or client certificate"},
	{name: "a token that cannot be verified now", kind: is(authn.ErrCannotTell),
		status: http.StatusServiceUnavailable, code: jsonrpc.CodeUnreachable, outcome: metrics.CannotTell, login: metrics.IssuerAway, retry: 5 * time.Second,
		text: "cannot verify this token: its issuer's signing keys are unavailable. Nothing was executed; retry."},
	{name: "too many failed logins", kind: as[*authn.TooManyFailuresError],
		status: statusBusy, code: jsonrpc.CodeTooManyLogins, outcome: metrics.Busy, login: metrics.TooManyFailures,
		fill: func(found error, a *Answer) {
			a.RetryAfter = found.(*authn.TooManyFailuresError).RetryAfter
			a.Err.Message = fmt.Sprintf("too many failed logins: wait %s, then send the correct credentials", a.RetryAfter)
		}},
	{name: "too many logins at once", kind: is(authn.ErrBusy),
		status: statusBusy, code: jsonrpc.CodeTooMany, outcome: metrics.Busy, login: metrics.LoginBusy, retry: time.Second,
		text: "too many logins at once. Nothing was executed; retry."},

	{name: "a load balancer that does not send the client's address", kind: as[*NoClientError],
		status: http.StatusBadRequest, code: jsonrpc.CodeInvalidRequest, outcome: metrics.Invalid,
		text: "%s. Nothing was executed; configure it to add the address at the end of that header."},
	{name: "a session that has ended", kind: is(ErrSessionEnded, authn.ErrCredentialChanged),
		status: http.StatusUnauthorized, code: jsonrpc.CodeUnauthorized, outcome: metrics.Unauthenticated, login: metrics.WrongCredentials,
		text: "the session has ended. Nothing was executed; sign in again."},
	{name: "a session that belongs to another client certificate", kind: is(authn.ErrOtherConnection),
		status: http.StatusUnauthorized, code: jsonrpc.CodeUnauthorized, outcome: metrics.Unauthenticated, login: metrics.WrongCredentials,
		text: "the session belongs to a client certificate that this connection does not have. Nothing was executed; send the certificate, or sign in again."},
	{name: "a missing CSRF token", kind: is(ErrCSRF),
		status: http.StatusForbidden, code: jsonrpc.CodeForbidden, outcome: metrics.Denied, denial: metrics.ByOrigin,
		text: "the request lacks its session's CSRF token (X-CSRF-Token). Nothing was executed; load the console again."},
	{name: "a request that a page of another site caused", kind: is(ErrCrossOrigin),
		status: http.StatusForbidden, code: jsonrpc.CodeForbidden, outcome: metrics.Denied, denial: metrics.ByOrigin,
		text: "a web page on another site made your browser send this call with your credentials. Nothing was executed; find out which page it was."},
	{name: "too many streams", kind: is(ErrStreams),
		status: statusBusy, code: jsonrpc.CodeTooMany, outcome: metrics.Busy, retry: 5 * time.Second,
		text: "too many streams are open: close some, then retry"},
	{name: "the proxy is stopping", kind: is(ErrDraining),
		status: http.StatusServiceUnavailable, code: jsonrpc.CodeDraining, outcome: metrics.Draining, retry: time.Second,
		text: "the proxy is stopping. Nothing was executed; retry on a new connection."},
	{name: "a request that is too large", kind: as[*http.MaxBytesError],
		status: http.StatusRequestEntityTooLarge, code: jsonrpc.CodeTooLarge, outcome: metrics.TooLarge,
		fill: func(found error, a *Answer) {
			a.Err.Message = fmt.Sprintf("the request is larger than the limit of %d KiB: split it", found.(*http.MaxBytesError).Limit>>10)
		}},
	{name: "a request that did not arrive in time", kind: is(ErrSlowBody),
		status: http.StatusRequestTimeout, code: jsonrpc.CodeInvalidRequest, outcome: metrics.ClientGone,
		text: "the request did not arrive in time: send it without pauses, with the right Content-Length"},
	{name: "the client disconnected", kind: is(ErrGone, target.ErrAbandoned, context.Canceled),
		status: StatusClientGone, code: jsonrpc.CodeUnreachable, outcome: metrics.ClientGone,
		text: "the client disconnected. Nothing was executed."},

	{name: "the configuration was reloaded during a batch", kind: is(errReloaded),
		status: http.StatusServiceUnavailable, code: jsonrpc.CodeUnreachable, outcome: metrics.CannotTell, retry: time.Second,
		text: "the proxy's configuration was reloaded after this batch had arrived, and its user's permissions may have changed. This call was not executed; send it again."},
	{name: "a batch with results that are too large", kind: is(errBatchResults),
		status: http.StatusRequestEntityTooLarge, code: jsonrpc.CodeTooLarge, outcome: metrics.TooLarge,
		text: fmt.Sprintf("the results of this batch exceed %d MiB. This call was not executed; send it in a separate request.", maxBatchResults>>20)},
	{name: "a request with too many values", kind: when(func(e *jsonrpc.Error) bool { return e.Code == jsonrpc.CodeTooLarge }),
		status: http.StatusRequestEntityTooLarge, outcome: metrics.TooLarge, fill: itself},
	{name: "no JSON-RPC request", kind: as[*jsonrpc.Error],
		status: http.StatusBadRequest, outcome: metrics.Invalid, fill: itself},
	{name: "a method that the configuration does not enable", kind: as[*NotOfferedError],
		status: http.StatusBadRequest, code: jsonrpc.CodeMethodNotFound, outcome: metrics.Invalid, text: "%s"},
	{name: "a key that cannot be added or removed", kind: as[*keys.Refusal],
		status: http.StatusOK, outcome: metrics.SPDKError,
		fill: func(found error, a *Answer) { a.Err.Code = -int(found.(*keys.Refusal).Errno) }, text: "%s"},
	{name: "changes of a snapshot that cannot be read", kind: as[*changes.Refusal],
		status: http.StatusOK, outcome: metrics.SPDKError,
		fill: func(found error, a *Answer) { a.Err.Code = -int(found.(*changes.Refusal).Errno) }, text: "%s"},
	{name: "a volume in use that cannot be frozen", kind: as[*quiesce.InUseError],
		status: http.StatusConflict, code: jsonrpc.CodeInUse, outcome: metrics.InUse, text: "%s"},
	{name: "a snapshot that is smaller than its parent and its clone", kind: as[*quiesce.ShrunkError],
		status: http.StatusConflict, code: jsonrpc.CodeInUse, outcome: metrics.InUse, text: "%s"},
	{name: "a snapshot that is smaller than its clone", kind: as[*quiesce.GrownError],
		status: http.StatusConflict, code: jsonrpc.CodeInUse, outcome: metrics.InUse, text: "%s"},
	{name: "other operations on the volume", kind: as[*quiesce.BusyError],
		status: statusBusy, code: jsonrpc.CodeTooMany, outcome: metrics.Busy, retry: time.Second,
		fill: func(found error, a *Answer) {
			a.Err.Message = found.(*quiesce.BusyError).Why + ". Nothing was executed; retry."
		}},
	{name: "a snapshot that exists", kind: as[*quiesce.ExistsError],
		status: http.StatusOK, code: -int(syscall.EEXIST), outcome: metrics.SPDKError, text: "%s"},
	{name: "a response of the target that the proxy does not know", kind: as[*quiesce.AnswerError],
		status: http.StatusBadGateway, code: jsonrpc.CodeUnreachable, outcome: metrics.Unreachable,
		text: "%s. Nothing was executed. Run spdk-proxy schema drift to compare the target with the releases that this proxy knows."},
	{name: "an unknown method", kind: as[*rpcschema.UnknownMethodError],
		status: http.StatusBadRequest, code: jsonrpc.CodeMethodNotFound, outcome: metrics.Invalid, text: "%s"},
	{name: "a call that no role allows", kind: is(decide.ErrDenied),
		status: http.StatusForbidden, code: jsonrpc.CodeForbidden, outcome: metrics.Denied, denial: metrics.ByRole,
		text: "this user may not make this call: ask the administrator of this proxy for a role that allows it"},
	{name: "a call that no role allows with its parameters", kind: is(decide.ErrDeniedParams),
		status: http.StatusForbidden, code: jsonrpc.CodeForbidden, outcome: metrics.Denied, denial: metrics.ByRole,
		text: "this user may make this call, but not with these parameters: ask the administrator of this proxy which parameters its roles allow"},
	{name: "a call outside of the user's tenant", kind: as[*tenancy.Refusal],
		status: http.StatusForbidden, code: jsonrpc.CodeForbidden, outcome: metrics.Denied, denial: metrics.ByTenant,
		fill: func(found error, a *Answer) {
			a.Err.Message = "this user may not make this call: " + found.(*tenancy.Refusal).Reason
		}},
	{name: "a call beyond the tenant's quota", kind: as[*tenancy.QuotaError],
		status: http.StatusInsufficientStorage, code: -int(syscall.ENOSPC), outcome: metrics.OverQuota, denial: metrics.ByQuota,
		text: "%s"},
	{name: "a tenant's objects that cannot be counted now", kind: is(tenancy.ErrBusy),
		status: statusBusy, code: jsonrpc.CodeTooMany, outcome: metrics.Busy, retry: time.Second, text: "%s. Nothing was executed; retry."},
	{name: "parameters that SPDK does not accept", kind: as[rpcschema.Violations],
		status: http.StatusBadRequest, code: jsonrpc.CodeInvalidParams, outcome: metrics.Invalid, text: "%s"},

	{name: "too much memory of this user's requests and responses", kind: is(ErrMemory),
		status: statusBusy, code: jsonrpc.CodeTooMany, outcome: metrics.Busy, retry: time.Second,
		text: "memory limit for this user reached. Nothing was executed; read pending responses, or send fewer calls at once."},
	{name: "a listing of volumes beside a deletion, before v24.09", kind: is(target.ErrListing),
		status: statusBusy, code: jsonrpc.CodeTooMany, outcome: metrics.Busy, retry: time.Second, text: "%s (before v24.09). Nothing was executed; retry."},
	{name: "a deletion beside a listing of volumes, before v24.09", kind: is(target.ErrDeleting),
		status: statusBusy, code: jsonrpc.CodeTooMany, outcome: metrics.Busy, retry: time.Second, text: "%s (before v24.09). Nothing was executed; retry when the deletion has ended."},
	{name: "too many calls per second", kind: as[*rateError],
		status: statusBusy, code: jsonrpc.CodeTooMany, outcome: metrics.Busy, retry: time.Second, text: "%s. Nothing was executed; send fewer calls, or retry."},
	{name: "too many running calls of this user", kind: when(func(e *target.BusyError) bool { return e.User }),
		status: statusBusy, code: jsonrpc.CodeTooMany, outcome: metrics.Busy, retry: time.Second,
		text: "too many calls of this user are running. Nothing was executed; send fewer at once, or retry."},
	{name: "too many running calls", kind: as[*target.BusyError],
		status: statusBusy, code: jsonrpc.CodeTooMany, outcome: metrics.Busy, retry: time.Second, text: "too many calls are running. Nothing was executed; retry."},
	{name: "an unreachable target", kind: either(as[*target.DownError], is(spdkrpc.Unreachable)),
		status: http.StatusBadGateway, code: jsonrpc.CodeUnreachable, outcome: metrics.Unreachable, retry: time.Second,
		text: "the SPDK target is unreachable. Nothing was executed; check that spdk_tgt runs, then retry."},
	{name: "no response of SPDK in time to a call that only reads", kind: as[*unansweredReadError],
		status: http.StatusGatewayTimeout, code: jsonrpc.CodeOutcomeUnknown, outcome: metrics.UnknownOutcome,
		text: "SPDK did not answer in time, or ended during the call. This call only reads, so nothing was changed; check that spdk_tgt runs, then retry."},
	{name: "no response of SPDK in time", kind: is(spdkrpc.OutcomeUnknown),
		status: http.StatusGatewayTimeout, code: jsonrpc.CodeOutcomeUnknown, outcome: metrics.UnknownOutcome,
		text: "SPDK did not answer in time: the call may have been, or may still be, executed. Check the state before retrying."},
	{name: "a request that is too large for the target's release", kind: when(func(e *spdkrpc.Error) bool { return e.Code == jsonrpc.CodeTooLarge }),
		status: http.StatusRequestEntityTooLarge, code: jsonrpc.CodeTooLarge, outcome: metrics.TooLarge, text: "the request is too large for this target's release: split it"},
	{name: "SPDK's own error", kind: when(func(e *spdkrpc.Error) bool { return e.Code != 0 }),
		status: http.StatusOK, outcome: metrics.SPDKError,
		fill: func(found error, a *Answer) {
			e := found.(*spdkrpc.Error)
			a.Err = &jsonrpc.Error{Code: e.Code, Message: e.Message}
		}},
	{name: "a directory of the proxy that is full or read-only", kind: is(syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS),
		status: http.StatusInternalServerError, code: jsonrpc.CodeInternalError, outcome: metrics.Failed,
		text: "the proxy cannot write to one of its directories: %s. The proxy's log names the directory, under the id in X-Request-Id. Repeat the call when the directory can be written."},
	{name: "a fault of the proxy", kind: func(err error) error { return err },
		status: http.StatusInternalServerError, code: jsonrpc.CodeInternalError, outcome: metrics.Failed,
		text: "the proxy failed during this call: see its log, under the id in X-Request-Id"},
}

// itself passes a JSON-RPC error on to the client unchanged.
func itself(found error, a *Answer) { a.Err = found.(*jsonrpc.Error) }

func either(kinds ...kind) kind {
	return func(err error) error {
		for _, k := range kinds {
			if found := k(err); found != nil {
				return found
			}
		}
		return nil
	}
}

// An Answer is the outcome of a call for the client, the log and the metrics.
type Answer struct {
	Status     int
	Err        *jsonrpc.Error // nil if the call returned a result
	RetryAfter time.Duration
	Outcome    metrics.Outcome

	login  metrics.LoginFailure
	denial metrics.Denial
}

// spdk reports whether the error is SPDK's own, or has the format of one.
func (a Answer) spdk() bool { return a.Outcome == metrics.SPDKError }

// AnswerTo converts an error of any stage to a response according to the table of errors. No other
// function converts errors to responses.
func AnswerTo(err error) Answer {
	if err == nil {
		return Answer{Status: http.StatusOK, Outcome: metrics.OK}
	}
	for _, r := range rows {
		found := r.kind(err)
		if found == nil {
			continue
		}
		a := Answer{Status: r.status, Err: &jsonrpc.Error{Code: r.code, Message: r.text}, RetryAfter: r.retry, Outcome: r.outcome, login: r.login, denial: r.denial}
		if strings.Contains(r.text, "%s") {
			a.Err.Message = fmt.Sprintf(r.text, found)
		}
		if r.fill != nil {
			r.fill(found, &a)
		}
		return a
	}
	panic(err) // impossible: the last row matches every error
}
