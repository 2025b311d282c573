package metrics

// An Outcome is the way a call ended.
type Outcome int

// These are the outcomes of a call. The call was sent to SPDK only if the outcome is OK, SPDKError
// or UnknownOutcome.
const (
	OK             Outcome = iota
	SPDKError              // SPDK responded with an error
	UnknownOutcome         // no response in time; the call may have been executed
	Unreachable            // the target could not be reached
	// refused by a role or the tenant's scope, or because another site's page sent the call
	Denied
	OverQuota       // exceeds a tenant's quota
	Invalid         // malformed request, unknown method, or invalid parameters
	InUse           // the volume is in use and cannot be frozen for a snapshot
	TooLarge        // the call is too large for SPDK, or the response is too large for the proxy
	Unauthenticated // no valid credentials
	CannotTell      // the token could not be verified because its issuer is unavailable
	Busy            // too many concurrent calls, or too many failed logins
	Draining        // the proxy was stopping
	ClientGone      // the client disconnected, or sent its request too slowly
	Failed          // error in the proxy itself
	outcomes
)

var outcomeNames = [outcomes]string{
	"ok", "spdk_error", "unknown_outcome", "unreachable", "denied", "over_quota", "invalid", "in_use", "too_large",
	"unauthenticated", "cannot_tell", "busy", "draining", "client_gone", "failed",
}

func (o Outcome) String() string { return outcomeNames[o] }

// reachedSPDK reports whether the call reached SPDK, so that its duration is recorded.
func (o Outcome) reachedSPDK() bool { return o == OK || o == SPDKError || o == UnknownOutcome }

// A Denial is the kind of rule that refused a call.
type Denial int

// These are the kinds of rules that refuse calls.
const (
	ByNoRule Denial = iota // no role allows the call
	ByRole                 // a deny rule of a role, or a condition on parameters
	ByTenant               // the call exceeds the scope of the user's tenant
	ByQuota                // the call exceeds the quota of the user's tenant
	ByOrigin               // a browser sent the call on behalf of another site's page
	denialKinds
)

var denialNames = [denialKinds]string{"none", "role", "tenant", "quota", "origin"}

func (d Denial) String() string { return denialNames[d] }

// A LoginFailure is the reason why a request could not be authenticated.
type LoginFailure int

// These are the reasons why authentication fails.
const (
	NotChecked       LoginFailure = iota // the request was refused before its credentials were checked
	WrongCredentials                     // unknown user, wrong password, invalid token or certificate, or ended session
	NoCredentials
	TooManyFailures // the credentials were not checked, because there had been too many failures
	LoginBusy       // the credentials could not be checked in time
	IssuerAway      // the token could not be verified because its issuer is unavailable
	loginFailures
)

var loginFailureNames = [loginFailures]string{"not_checked", "wrong_credentials", "no_credentials", "too_many_failures", "busy", "issuer_away"}

func (f LoginFailure) String() string { return loginFailureNames[f] }
