package gate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/lvstore/changes"
	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/decide"
	"github.com/spdkgate/spdkgate/proxy/keys"
	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Clients decide by the status, the code and Retry-After whether they may repeat a call.
func TestErrorsMapToResponses(t *testing.T) {
	second := time.Second
	called := func(kind spdkrpc.Kind, code int) error {
		return &spdkrpc.Error{Method: "m", Kind: kind, Code: code, Message: "SPDK's text", Err: errors.New("cause")}
	}
	for _, c := range []struct {
		err          error
		status, code int
		spdk         bool
		retryAfter   time.Duration
		says         string
	}{
		{nil, 200, 0, false, 0, ""},
		{errors.Join(&persist.NotSavedError{Why: decide.ErrDenied}, decide.ErrDenied), 500, -32050, false, 0, "the target executed the call"},
		{&authn.RejectedError{Reason: "the token expired"}, 401, -32001, false, 0, "authentication failed: the token expired"},
		{authn.ErrWrongCredentials, 401, -32001, false, 0, "correct the name, password or token"},
		{authn.ErrNoCredentials, 401, -32001, false, 0, "send the name and password"},
		{authn.ErrCannotTell, 503, -32052, false, 5 * second, "retry"},
		{&authn.TooManyFailuresError{RetryAfter: 7 * second}, 429, -32030, false, 7 * second, "wait 7s"},
		{authn.ErrBusy, 429, -32029, false, second, "too many logins"},
		{&NoClientError{netip.MustParseAddr("10.0.0.1")}, 400, -32600, false, 0, "10.0.0.1"},
		{ErrSessionEnded, 401, -32001, false, 0, "sign in again"},
		{authn.ErrCredentialChanged, 401, -32001, false, 0, "sign in again"},
		{authn.ErrOtherConnection, 401, -32001, false, 0, "client certificate"},
		{ErrCSRF, 403, -32003, false, 0, "X-CSRF-Token"},
		{ErrCrossOrigin, 403, -32003, false, 0, "another site"},
		{ErrStreams, 429, -32029, false, 5 * second, "streams"},
		{ErrDraining, 503, -32053, false, second, "new connection"},
		{&http.MaxBytesError{Limit: 4 << 10}, 413, -32013, false, 0, "4 KiB"},
		{ErrSlowBody, 408, -32600, false, 0, "Content-Length"},
		{ErrGone, 499, -32052, false, 0, "disconnected"},
		{target.ErrAbandoned, 499, -32052, false, 0, "disconnected"},
		{context.Canceled, 499, -32052, false, 0, "disconnected"},
		{errReloaded, 503, -32052, false, second, "not executed; send it again"},
		{errBatchResults, 413, -32013, false, 0, "exceed 64 MiB"},
		{jsonrpc.Errorf(jsonrpc.CodeTooLarge, "nested too deeply"), 413, -32013, false, 0, "nested too deeply"},
		{jsonrpc.Errorf(jsonrpc.CodeParseError, "no JSON"), 400, -32700, false, 0, "no JSON"},
		{&NotOfferedError{"some_method", "some.key"}, 400, -32601, false, 0, "no some.key"},
		{&keys.Refusal{Errno: syscall.EEXIST, Text: "key k exists"}, 200, -17, true, 0, "key k exists"},
		{&quiesce.InUseError{Volume: "lvs/v"}, 409, -32009, false, 0, "lvs/v"},
		{&quiesce.ShrunkError{Snapshot: "lvs/s", Clone: "lvs/v"}, 409, -32009, false, 0, "snapshot lvs/s is smaller than both its parent and its clone lvs/v"},
		{&quiesce.GrownError{Snapshot: "lvs/s", Clone: "lvs/v"}, 409, -32009, false, 0, "snapshot lvs/s is smaller than its clone lvs/v"},
		{&quiesce.BusyError{Why: "other calls take a snapshot"}, 429, -32029, false, second, "other calls take a snapshot. Nothing was executed"},
		{&quiesce.ExistsError{Name: "s"}, 200, -17, true, 0, "snapshot s"},
		{&quiesce.AnswerError{Method: "bdev_get_bdevs"}, 502, -32052, false, 0, "schema drift"},
		{&rpcschema.UnknownMethodError{Method: "bdev_lvol_crate"}, 400, -32601, false, 0, "bdev_lvol_crate"},
		{decide.ErrDenied, 403, -32003, false, 0, "may not make this call"},
		{decide.ErrDeniedParams, 403, -32003, false, 0, "not with these parameters"},
		{&tenancy.Refusal{Tenant: "team", Reason: "the volume is not this tenant's"}, 403, -32003, false, 0, "not this tenant's"},
		{&tenancy.QuotaError{Tenant: "team", What: "volumes", Used: 2, Asked: 1, Most: 2}, 507, -28, false, 0, "2 volumes"},
		{tenancy.ErrBusy, 429, -32029, false, second, "retry"},
		{rpcschema.Violations{{}}, 400, -32602, false, 0, ""},
		{ErrMemory, 429, -32029, false, second, "memory limit"},
		{target.ErrListing, 429, -32029, false, second, "v24.09"},
		{target.ErrDeleting, 429, -32029, false, second, "v24.09"},
		{&rateError{3}, 429, -32029, false, second, "3 calls per second"},
		{&target.BusyError{User: true}, 429, -32029, false, second, "calls of this user"},
		{&target.BusyError{}, 429, -32029, false, second, "too many calls are running"},
		{&target.DownError{Socket: "/secret", Err: called(spdkrpc.OutcomeUnknown, 0)}, 502, -32052, false, second, "Nothing was executed"},
		{called(spdkrpc.Unreachable, 0), 502, -32052, false, second, "Nothing was executed"},
		{called(spdkrpc.OutcomeUnknown, 0), 504, -32054, false, 0, "may have been"},
		{&unansweredReadError{called(spdkrpc.OutcomeUnknown, 0)}, 504, -32054, false, 0, "nothing was changed"},
		{&changes.Refusal{Errno: syscall.EIO, Text: "check the disk", Err: called(spdkrpc.Failed, -32603)}, 200, -5, true, 0, "check the disk"},
		{called(spdkrpc.Failed, jsonrpc.CodeTooLarge), 413, -32013, false, 0, "split it"},
		{called(spdkrpc.Failed, -17), 200, -17, true, 0, "SPDK's text"},
		{called(spdkrpc.Failed, 0), 500, -32603, false, 0, "X-Request-Id"},
		{ErrPanic, 500, -32603, false, 0, "X-Request-Id"},
		{&fs.PathError{Op: "write", Path: "/secret", Err: syscall.ENOSPC}, 500, -32603, false, 0, "one of its directories: no space left on device"},
		{&fs.PathError{Op: "write", Path: "/secret", Err: syscall.EROFS}, 500, -32603, false, 0, "one of its directories: read-only file system"},
		{errors.New("/some/file"), 500, -32603, false, 0, "X-Request-Id"},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("a stage: %w", err)
		}
		a := AnswerTo(err)
		assert.Equal(t, []any{c.status, c.spdk, c.retryAfter}, []any{a.Status, a.spdk(), a.RetryAfter}, "%v", c.err)
		if c.err == nil {
			assert.Nil(t, a.Err)
			continue
		}
		assert.Equal(t, c.code, a.Err.Code, "%v", c.err)
		assert.Contains(t, a.Err.Message, c.says)
		assert.NotContains(t, a.Err.Message, "/secret")
	}
}

func TestErrorsMapToOutcomes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want metrics.Outcome
	}{
		{nil, metrics.OK},
		{&spdkrpc.Error{Code: -19}, metrics.SPDKError},
		{authn.ErrWrongCredentials, metrics.Unauthenticated},
		{&authn.TooManyFailuresError{}, metrics.Busy},
		{decide.ErrDenied, metrics.Denied},
		{&tenancy.Refusal{}, metrics.Denied},
		{&tenancy.QuotaError{}, metrics.OverQuota},
		{&jsonrpc.Error{Code: jsonrpc.CodeParseError}, metrics.Invalid},
		{&http.MaxBytesError{}, metrics.TooLarge},
		{&target.BusyError{}, metrics.Busy},
		{&target.DownError{Err: errors.New("x")}, metrics.Unreachable},
		{spdkrpc.OutcomeUnknown, metrics.UnknownOutcome},
		{ErrDraining, metrics.Draining},
		{fmt.Errorf("issuer x: %w", authn.ErrCannotTell), metrics.CannotTell},
		{ErrCrossOrigin, metrics.Denied},
		{ErrGone, metrics.ClientGone},
		{ErrSlowBody, metrics.ClientGone},
		{context.Canceled, metrics.ClientGone},
		{ErrPanic, metrics.Failed},
	} {
		assert.Equal(t, c.want, AnswerTo(c.err).Outcome, "%v", c.err)
	}
}

func TestDenialsNameTheRule(t *testing.T) {
	for _, c := range []struct {
		err  error
		rule string
		want metrics.Denial
	}{
		{decide.ErrDenied, policy.NoRule, metrics.ByNoRule},
		{decide.ErrDenied, "role ops: deny x", metrics.ByRole},
		{&tenancy.Refusal{}, "tenant a", metrics.ByTenant},
		{fmt.Errorf("x: %w", &tenancy.QuotaError{}), "tenant a: quota of bytes", metrics.ByQuota},
		{ErrCrossOrigin, "", metrics.ByOrigin},
	} {
		assert.Equal(t, c.want, denialOf(&Call{answered: answered{answer: AnswerTo(c.err)}, decided: decided{rule: c.rule}}), c.rule)
	}
	for _, c := range []struct {
		err  error
		want metrics.LoginFailure
	}{
		{authn.ErrNoCredentials, metrics.NoCredentials},
		{authn.ErrWrongCredentials, metrics.WrongCredentials},
		{&authn.TooManyFailuresError{}, metrics.TooManyFailures},
		{fmt.Errorf("%w: x", authn.ErrBusy), metrics.LoginBusy},
		{fmt.Errorf("issuer x: %w", authn.ErrCannotTell), metrics.IssuerAway},
	} {
		assert.Equal(t, c.want, AnswerTo(c.err).login, c.err)
	}
}
