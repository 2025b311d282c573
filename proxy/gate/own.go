package gate

import (
	"context"
	"fmt"

	"github.com/spdkgate/spdkgate/proxy/execute"
)

// An Own is a method that the proxy serves itself, or a page of it. The stages of a call read from
// it what differs from SPDK's methods; its zero values are what holds for SPDK's.
type Own struct {
	Name string
	// Endpoint is the only endpoint that the method can be called through, such as "GET /events";
	// "": all that take calls.
	Endpoint string

	Users   Users
	Tenants Tenants
	// Unexamined means that tenants may call the method even while the target loads what hosts
	// write.
	Unexamined bool
	Target     Need
	// Slot means that a call takes one of the user's slots at the target while it is served. A
	// method that makes calls of its own leaves it to these.
	Slot bool

	// Unlogged keeps some calls of a page out of the log and the metrics: those that succeed, and
	// those of unauthenticated senders. The console requests such a page whenever it is opened.
	Unlogged bool

	Key     string      // of the configuration, which enables the method; "": it is always enabled
	Enabled func() bool // nil: always

	// Serve returns a json.RawMessage, or another value for a page, of which JSON is made for other
	// endpoints.
	Serve func(ctx context.Context, r *Request) (any, error)
}

// A Request is an allowed call of a method that the proxy serves itself.
type Request struct {
	execute.Command
	Call     *Call
	Settings *Settings
}

// Users are those who may call a method.
type Users int

// The values of Users.
const (
	ByRole         Users = iota // those whose roles allow it
	Everybody                   // every authenticated user
	Administrators              // see Settings.Administrator
)

// Tenants is what holds for users of a tenant.
type Tenants int

// The values of Tenants.
const (
	Scoped   Tenants = iota // the objects that the call names must be their own
	Filtered                // the method itself leaves out what is not their own
	Unscoped                // nothing: the result has no objects, and the target may load what hosts write
)

// A Need is when a method needs the target.
type Need int

// The values of Need.
const (
	Always     Need = iota
	ForTenants      // to decide about them
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
	return fmt.Sprintf("%s is not enabled, as the proxy's configuration has no %s: ask the administrator of this proxy", e.Method, e.Key)
}
