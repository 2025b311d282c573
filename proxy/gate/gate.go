package gate

import (
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/execute"
	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Gate processes every request to a target. It is safe for concurrent use.
type Gate struct {
	Options
	settings   atomic.Pointer[Settings]
	own        map[string]*Own
	inFlight   inFlight
	rates      callRates
	memory     memoryBudget
	oldClients oldClients
}

// Options contains the parts of the proxy that a Gate uses.
type Options struct {
	Schema  *rpcschema.Document
	Log     *slog.Logger
	Target  *target.Target
	Execute *execute.Executor
	Clients *clientconn.Set

	Metrics  *metrics.Metrics
	AuditLog *auditlog.Log
}

// Complete sets the parts of a Gate and the methods that the proxy serves itself. It must be called
// exactly once, before the first request.
func (g *Gate) Complete(o Options, own []Own) {
	g.Options, g.own = o, make(map[string]*Own, len(own))
	g.oldClients.log = o.Log
	for i := range own {
		g.own[own[i].Name] = &own[i]
	}
}

// Settings returns the current settings. A request must use the same Settings from beginning to
// end.
func (g *Gate) Settings() *Settings { return g.settings.Load() }

// Apply replaces the settings, and the limits of users.
func (g *Gate) Apply(s *Settings, l config.Limits) {
	g.settings.Store(s)
	g.rates.set(l.UserCallsPerSecond, l.UsersCallsPerSecond)
}

// HasMemory reports whether the user's memory limit allows another long result.
func (g *Gate) HasMemory(user string) bool { return !g.memory.Exhausted(user) }

// Timeout returns how long the proxy waits for SPDK's response to a method.
func (g *Gate) Timeout(method string) time.Duration { return g.Settings().TimeoutOf(method) }

// Executed reports a call that may have changed which objects belong to which tenant.
func (g *Gate) Executed(m *rpcschema.Method) { g.Settings().Tenancy.Executed(m) }

// ConnState counts connections. It must be called for every change of a connection's state.
func (g *Gate) ConnState(conn net.Conn, state http.ConnState) {
	g.inFlight.connState(conn, state)
	g.Clients.ConnState(conn, state)
}

// Drain begins to stop the processing of requests. After a short time, further requests are
// refused. drained is closed when the last request has ended, and left is closed when clients have
// closed all connections. The caller must have closed the listeners.
func (g *Gate) Drain() (drained, left <-chan struct{}) { return g.inFlight.drain() }

// Draining reports whether Drain has been called.
func (g *Gate) Draining() bool { return g.inFlight.isDraining() }

// Counts returns the numbers of open connections and running requests.
func (g *Gate) Counts() (open, running int) { return g.inFlight.counts() }
