package gate

import (
	"context"
	"fmt"

	"github.com/spdkgate/spdkgate/proxy/execute"
)

// An Own describes a method or page that the proxy serves itself. It tells the stages of a call how
// the method differs from SPDK's methods. The zero value describes SPDK's.
type Own struct {
	Name string
	// Endpoint is the only endpoint through which the method can be called, such as "GET /events";
	// "" means every endpoint that takes calls.
	Endpoint string

	Users   Users
	Tenants Tenants
	// Unexamined means that tenants may call the method even while the target loads what hosts
	// write.
	Unexamined bool
	Target     Need
	// Slot means that a call takes one of the user's slots at the target while it is served. If a
	// method makes calls itself, those calls take the slots instead.
	Slot bool

	// Unlogged keeps some calls to a page out of the log and the metrics: successful ones, and
	// those from unauthenticated senders. The console requests such a page whenever it is opened.
	Unlogged bool

	Key     string      // of the configuration, which enables the method; "": it is always enabled
	Enabled func() bool // nil: always

	// Serve returns a json.RawMessage or, for a page, another value, which is converted to JSON for
	// other endpoints.
	Serve func(ctx context.Context, r *Request) (any, error)
}

// A Request is an allowed call to a method that the proxy serves itself.
type Request struct {
	execute.Command
	Call     *Call
	Settings *Settings
}

// A Users value defines who may call a method.
type Users int

// The values of Users.
const (
	ByRole         Users = iota // those whose roles allow it
	Everybody                   // every authenticated user
	Administrators              // see Settings.Administrator
)

// A Tenants value defines what applies to a tenant's users.
type Tenants int

// The values of Tenants.
const (
	Scoped   Tenants = iota // the objects named in the call must be their own
	Filtered                // the method itself omits other tenants' objects
	Unscoped                // nothing: the result contains no objects, and the target may load what hosts write
)

// A Need defines when a method needs the target.
type Need int

// The values of Need.
const (
	Always     Need = iota
	ForTenants      // to decide on tenants' calls
	// Never means that the method is served while the target is down. It cannot name objects of the
	// target.
	Never
)

// enabled returns an error if the configuration does not enable the method.
func (o *Own) enabled() error {
	if o.Enabled != nil && !o.Enabled() {
		return &NotOfferedError{o.Name, o.Key}
	}
	return nil
}

// Offers reports whether the configuration enables a method.
func (g *Gate) Offers(method string) bool {
	own := g.own[method]
	return own == nil || own.enabled() == nil
}

// A NotOfferedError means that the configuration lacks the key that enables a method.
type NotOfferedError struct{ Method, Key string }

func (e *NotOfferedError) Error() string {
	return fmt.Sprintf("%s is not enabled, because the proxy's configuration has no %s: ask the administrator of this proxy", e.Method, e.Key)
}
