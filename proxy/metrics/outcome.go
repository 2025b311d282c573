package metrics

// An Outcome is how a call ended.
type Outcome int

// These are the outcomes of a call. The call was sent to SPDK only if the outcome is OK, SPDKError
// or UnknownOutcome.
const (
	OK             Outcome = iota
	SPDKError              // SPDK responded with an error
	UnknownOutcome         // no response in time; the call may have been executed
	Unreachable            // the target could not be reached
	// by a role or the tenant's scope, or because a page on another site sent the call
	Denied
	OverQuota       // beyond a tenant's quota
	Invalid         // not a valid request, an unknown method, or wrong parameters
	InUse           // the volume is in use and cannot be frozen for a snapshot
	TooLarge        // the call is too large for SPDK, or the response is too large for the proxy
	Unauthenticated // no valid credentials
	CannotTell      // the token could not be verified because its issuer is unavailable
	Busy            // too many concurrent calls, or too many failed logins
	Draining        // the proxy was stopping
	ClientGone      // the client disconnected, or sent its request too slowly
	Failed          // an error of the proxy itself
	outcomes
)

var outcomeNames = [outcomes]string{
	"ok", "spdk_error", "unknown_outcome", "unreachable", "denied", "over_quota", "invalid", "in_use", "too_large",
	"unauthenticated", "cannot_tell", "busy", "draining", "client_gone", "failed",
}

func (o Outcome) String() string { return outcomeNames[o] }

// reachedSPDK reports whether the call reached SPDK. The duration is recorded only for calls that
// reached SPDK.
func (o Outcome) reachedSPDK() bool { return o == OK || o == SPDKError || o == UnknownOutcome }

// A Denial is the kind of rule that refused a call.
type Denial int

// These are the kinds of rules that refuse calls.
const (
	ByNoRule Denial = iota // no role allows the call
	ByRole                 // a role's deny, or a condition on parameters
	ByTenant               // the call is outside the scope of the user's tenant
	ByQuota                // the quota of the user's tenant
	ByOrigin               // a browser sent the call from a page on another site
	denialKinds
)

var denialNames = [denialKinds]string{"none", "role", "tenant", "quota", "origin"}

func (d Denial) String() string { return denialNames[d] }

// A LoginFailure is the reason why a request could not be authenticated.
type LoginFailure int

// These are the reasons why requests are not authenticated.
const (
	NotChecked       LoginFailure = iota // the request was refused before its credentials were checked
	WrongCredentials                     // unknown user, wrong password, bad token or certificate, ended session
	NoCredentials
	TooManyFailures // the credentials were not checked, because too many had been wrong before
	LoginBusy       // the credentials could not be checked in time
	IssuerAway      // the token could not be verified because its issuer is unavailable
	loginFailures
)

var loginFailureNames = [loginFailures]string{"not_checked", "wrong_credentials", "no_credentials", "too_many_failures", "busy", "issuer_away"}

func (f LoginFailure) String() string { return loginFailureNames[f] }
