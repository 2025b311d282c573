package gate

import (
	"context"
	"fmt"

	"github.com/spdkgate/spdkgate/proxy/execute"
)

// An Own describes a method or page that the proxy serves itself. Each field is a difference
// between the method and SPDK's methods in the stages of a call. The zero value describes SPDK's
// methods.
type Own struct {
	Name string
	// Endpoint is the only endpoint at which the method can be called, such as "GET /events". ""
	// stands for all endpoints that accept calls.
	Endpoint string

	Users   Users
	Tenants Tenants
	// Unexamined means that tenants may call the method even while the target loads data structures
	// that hosts write to volumes.
	Unexamined bool
	Target     Need
	// Slot means that a call occupies one of the user's slots while it is being served. It is false
	// for methods that make calls to the target, because those calls occupy the slots.
	Slot bool

	// Unlogged omits some requests for a page from the log and the metrics: successful requests,
	// and those without valid credentials. It is meant for pages that the console requests whenever
	// it is opened.
	Unlogged bool

	// configuration key that enables the method; "" if it is always enabled
	Key     string
	Enabled func() bool // reports whether the method is enabled; nil means always

	// Serve returns a json.RawMessage. For a page, it may return any value, which other endpoints
	// convert to JSON.
	Serve func(ctx context.Context, r *Request) (any, error)
}

// A Request is an allowed call of a method that the proxy serves itself.
type Request struct {
	execute.Command
	Call     *Call
	Settings *Settings
}

// A Users value determines who may call a method.
type Users int

// These are the values of Users.
const (
	ByRole         Users = iota // users whose roles allow the call
	Everybody                   // every authenticated user
	Administrators              // see Settings.Administrator
)

// A Tenants value determines how a method treats tenants' users.
type Tenants int

// These are the values of Tenants.
const (
	Scoped   Tenants = iota // the objects named in the call must belong to the tenant
	Filtered                // the method itself omits other tenants' objects
	// no restriction: the result contains no objects, and the target may load data written by hosts
	Unscoped
)

// A Need determines when a method needs the target.
type Need int

// These are the values of Need.
const (
	Always     Need = iota
	ForTenants      // to decide whether tenants may make a call
	// Never means that the method is served even while the target is down. Its calls cannot name
	// objects of the target.
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
