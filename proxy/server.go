package proxy

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/barrier"
	"github.com/spdkgate/spdkgate/proxy/cert"
	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/events"
	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/proxy/session"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/targetmetrics"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Server is the proxy in front of one target.
type Server struct {
	schema *rpcschema.Document
	log    *slog.Logger
	config *config.Config // of the start; only keys that a reload cannot change are read from it
	target *target.Target
	cert   cert.Shown

	settings  atomic.Pointer[settings]
	inFlight  inFlight
	clients   *clientconn.Set
	balancers balancers
	callRates callRates
	memory    memoryBudget
	handler   http.Handler
	began     chan struct{} // closed when Serve begins to accept, see Alive
	ended     chan struct{} // closed when it accepts no longer
	metrics   *metrics.Metrics
	auditLog  *auditlog.Log
	callLog   io.Closer // the file of the audit log; nil: none

	figures       *figures.Shared // of the target
	figuresReader *figures.Reader // of figures
	targetMetrics *targetmetrics.Exporter
	histogramLog  histogramLog // of readings
	events        *events.Hub

	unreadBodyWait time.Duration // see skipBody

	oldClients oldClients
	restart    *restart
	quiescer   *quiesce.Quiescer
	barriers   barrier.Barriers // of snapshots on several targets

	version     string
	sessions    *session.Store[signedIn]
	flows       *session.Flows
	streams     streams
	streamCheck time.Duration // see streamCheckInterval
	process     string        // identifies this process in ids of events
	stopping    chan struct{} // closed when the server begins to stop
}

// connState passes on the changes of a connection's state.
func (s *Server) connState(conn net.Conn, state http.ConnState) {
	s.inFlight.connState(conn, state)
	s.clients.ConnState(conn, state)
}
