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
	// The method is allowed, with other parameters.
	errDeniedParams = errors.New("denied by policy with these parameters")
	errCrossOrigin  = errors.New("a web page of another site has a browser send this")
	errDraining     = errors.New("the proxy is stopping")
	errSlowBody     = errors.New("the request did not arrive in time")
	errGone         = errors.New("the client left before its request had arrived")
	errPanic        = errors.New("the proxy failed at this call")

	errBatchResults = errors.New("the results of the batch are too long")
)

// statusClientGone is what the log says where nobody is left to be told.
const statusClientGone = 499

// An answer is what a client gets.
type answer struct {
	status     int
	err        *jsonrpc.Error // nil: the result
	spdk       bool           // the error is SPDK's own
	retryAfter time.Duration
}

// answerTo turns the error of any stage into an answer: the one place where
// that is done. SPDK's own errors travel with 200 and exactly as SPDK gave them;
// all others say what to do.
func answerTo(err error) answer {
	var (
		slow      *authn.TooManyFailuresError
		nobody    *authn.RejectedError
		tooLong   *http.MaxBytesError
		malformed *jsonrpc.Error
		unknown   *rpcschema.UnknownMethodError
		invalid   rpcschema.Violations
		down      *target.DownError
		busy      *target.BusyError
		called    *spdkrpc.Error
		foreign   *tenancy.Refusal
		exceeded  *tenancy.QuotaError
		without   *notOfferedError
		key       *keys.Refusal
		inUse     *quiesce.InUseError
		freezing  *quiesce.BusyError
		taken     *quiesce.ExistsError
		untold    *quiesce.AnswerError
	)
	refuse := func(status, code int, format string, args ...any) answer {
		return answer{status: status, err: jsonrpc.Errorf(code, format, args...)}
	}
	wait := func(d time.Duration, a answer) answer { a.retryAfter = d; return a }
	switch {
	case err == nil:
		return answer{status: http.StatusOK}

	case errors.As(err, &nobody):
		return refuse(http.StatusUnauthorized, jsonrpc.CodeUnauthorized, "who are you? %s", nobody.Reason)
	case errors.Is(err, authn.ErrNoCredentials), errors.Is(err, authn.ErrWrongCredentials):
		return refuse(http.StatusUnauthorized, jsonrpc.CodeUnauthorized, "who are you? Give the name and password of a user of this proxy, by HTTP Basic authentication, or a user's bearer token or client certificate, if it takes them")
	case errors.Is(err, authn.ErrCannotTell):
		return wait(5*time.Second, refuse(http.StatusServiceUnavailable, jsonrpc.CodeUnreachable, "it cannot be told now whose token this is, as its issuer does not say its keys: nothing was executed, try again"))
	case errors.As(err, &slow):
		return wait(slow.RetryAfter, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "too many failed logins: wait %s, then give the right credentials", slow.RetryAfter))
	case errors.Is(err, authn.ErrBusy):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "too many logins at once: nothing was executed, try again"))

	case errors.Is(err, errCrossOrigin):
		return refuse(http.StatusForbidden, jsonrpc.CodeForbidden, "a web page of another site has your browser send this with what it knows of you: nothing was executed; find out which page it is")
	case errors.Is(err, errDraining):
		return wait(time.Second, refuse(http.StatusServiceUnavailable, jsonrpc.CodeDraining, "the proxy is stopping: nothing was executed, try again on a new connection"))
	case errors.As(err, &tooLong):
		return refuse(http.StatusRequestEntityTooLarge, jsonrpc.CodeTooLarge, "the request is longer than %d KiB, which SPDK would not take: split it", tooLong.Limit>>10)
	case errors.Is(err, errSlowBody):
		return refuse(http.StatusRequestTimeout, jsonrpc.CodeInvalidRequest, "the request did not arrive in time: send it at once, with its right Content-Length")
	case errors.Is(err, errGone), errors.Is(err, target.ErrAbandoned), errors.Is(err, context.Canceled):
		return refuse(statusClientGone, jsonrpc.CodeUnreachable, "the client left: nothing was executed")

	case errors.Is(err, errBatchResults):
		return refuse(http.StatusRequestEntityTooLarge, jsonrpc.CodeTooLarge, "the results of this batch have more than %d MiB already: this call was not executed, send it in a request of its own", maxBatchResults>>20)
	case errors.As(err, &malformed) && malformed.Code == jsonrpc.CodeTooLarge:
		return answer{status: http.StatusRequestEntityTooLarge, err: malformed}
	case errors.As(err, &malformed):
		return answer{status: http.StatusBadRequest, err: malformed}
	case errors.As(err, &without):
		return refuse(http.StatusBadRequest, jsonrpc.CodeMethodNotFound, "%s", without)
	case errors.As(err, &key):
		return answer{status: http.StatusOK, spdk: true, err: jsonrpc.Errorf(-int(key.Errno), "%s", key)}
	case errors.As(err, &inUse):
		return refuse(http.StatusConflict, jsonrpc.CodeInUse, "%s", inUse)
	case errors.As(err, &freezing):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "%s: nothing was executed, try again", freezing.Why))
	case errors.As(err, &taken):
		return answer{status: http.StatusOK, spdk: true, err: jsonrpc.Errorf(-int(syscall.EEXIST), "%s", taken)}
	case errors.As(err, &untold):
		return refuse(http.StatusBadGateway, jsonrpc.CodeUnreachable, "%s: nothing was executed. Run spdk-proxy schema drift to see how the target differs from the releases that this proxy knows", untold)
	case errors.As(err, &unknown):
		return refuse(http.StatusBadRequest, jsonrpc.CodeMethodNotFound, "%s", unknown)
	case errors.Is(err, errDenied):
		return refuse(http.StatusForbidden, jsonrpc.CodeForbidden, "this user may not make this call: ask whoever runs this proxy for a role that allows it")
	case errors.Is(err, errDeniedParams):
		return refuse(http.StatusForbidden, jsonrpc.CodeForbidden, "this user may make this call, but not with these parameters: ask whoever runs this proxy which ones its roles allow")
	case errors.As(err, &foreign):
		return refuse(http.StatusForbidden, jsonrpc.CodeForbidden, "this user may not make this call: %s", foreign.Reason)
	case errors.As(err, &exceeded):
		return refuse(http.StatusInsufficientStorage, -int(syscall.ENOSPC), "%s: delete something, or ask whoever runs this proxy for more", exceeded)
	case errors.Is(err, tenancy.ErrBusy):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "%s: nothing was executed, try again", tenancy.ErrBusy))
	case errors.As(err, &invalid):
		return refuse(http.StatusBadRequest, jsonrpc.CodeInvalidParams, "%s", invalid)

	case errors.Is(err, errMemory):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "requests and answers of this user take too much memory: nothing was executed; take the answers that wait, or have fewer calls at once"))
	case errors.Is(err, target.ErrListing):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "%s (before v24.09): nothing was executed; retry", target.ErrListing))
	case errors.Is(err, target.ErrDeleting):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "%s (before v24.09): nothing was executed; retry when the deletion has ended", target.ErrDeleting))
	case errors.As(err, &busy) && busy.User:
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "too many calls of this user are under way: nothing was executed; have fewer at once, or try again"))
	case errors.As(err, &busy):
		return wait(time.Second, refuse(http.StatusTooManyRequests, jsonrpc.CodeTooMany, "too many calls are under way: nothing was executed, try again"))
	case errors.As(err, &down), errors.Is(err, spdkrpc.Unreachable):
		return wait(time.Second, refuse(http.StatusBadGateway, jsonrpc.CodeUnreachable, "the SPDK target cannot be reached: nothing was executed; see that spdk_tgt runs, then try again"))
	case errors.Is(err, spdkrpc.OutcomeUnknown):
		return refuse(http.StatusGatewayTimeout, jsonrpc.CodeOutcomeUnknown, "SPDK did not answer: the call may have been executed, or still be; read back what it changes before trying again")
	case errors.As(err, &called) && called.Code == jsonrpc.CodeTooLarge:
		return refuse(http.StatusRequestEntityTooLarge, jsonrpc.CodeTooLarge, "the request does not fit this target's release: split it")
	case errors.As(err, &called) && called.Code != 0:
		return answer{status: http.StatusOK, spdk: true, err: &jsonrpc.Error{Code: called.Code, Message: called.Message}}
	}
	return refuse(http.StatusInternalServerError, jsonrpc.CodeInternalError, "the proxy failed at this call: its log says more, under the id in X-Request-Id")
}

// A notOfferedError means that the configuration does without what was asked for.
type notOfferedError struct{ method, key string }

func (e *notOfferedError) Error() string {
	return fmt.Sprintf("%s is not offered here, as the proxy's configuration has no %s: ask whoever runs this proxy", e.method, e.key)
}
