package metrics

// An Outcome is how a call ended; there are no others.
type Outcome int

// Outcomes. Only with OK, SPDKError and UnknownOutcome was SPDK asked.
const (
	OK              Outcome = iota
	SPDKError               // SPDK refused or failed
	UnknownOutcome          // no answer in time: it may have been executed
	Unreachable             // no target to ask
	Denied                  // by a role or a tenant's bounds, or sent by another site's page
	OverQuota               // beyond a tenant's quota
	Invalid                 // not a request, an unknown method, wrong parameters
	InUse                   // what it would snapshot is in use and cannot be frozen
	TooLarge                // for SPDK, or for an answer
	Unauthenticated         // by nobody who is known
	CannotTell              // whose token it was: its issuer is away
	Busy                    // too much at once, or too many failed logins
	Draining                // the proxy was stopping
	ClientGone              // who called left, or was too slow to say what
	Failed                  // a fault of the proxy's own
	outcomes
)

var outcomeNames = [outcomes]string{
	"ok", "spdk_error", "unknown_outcome", "unreachable", "denied", "over_quota", "invalid", "in_use", "too_large",
	"unauthenticated", "cannot_tell", "busy", "draining", "client_gone", "failed",
}

func (o Outcome) String() string { return outcomeNames[o] }

// reachedSPDK tells whether SPDK had the call, so that the time it took says something.
func (o Outcome) reachedSPDK() bool { return o == OK || o == SPDKError || o == UnknownOutcome }

// A Denial is the kind of rule that refused a call.
type Denial int

// Kinds of rules.
const (
	ByNoRule Denial = iota // no role allows it
	ByRole                 // a role's deny, or a condition on parameters
	ByTenant               // it is not for the user's tenant
	ByQuota                // of the user's tenant
	ByOrigin               // a page of another site had a browser send it
	denialKinds
)

var denialNames = [denialKinds]string{"none", "role", "tenant", "quota", "origin"}

func (d Denial) String() string { return denialNames[d] }

// A LoginFailure is why a request has no user.
type LoginFailure int

// Reasons.
const (
	NoCredentials    LoginFailure = iota
	WrongCredentials              // unknown user, wrong password, bad token or certificate
	TooManyFailures               // and so not looked at any more
	LoginBusy                     // could not be checked in time
	IssuerAway                    // so that nobody can tell whose token it is
	loginFailures
)

var loginFailureNames = [loginFailures]string{"no_credentials", "wrong_credentials", "too_many_failures", "busy", "issuer_away"}

func (f LoginFailure) String() string { return loginFailureNames[f] }
