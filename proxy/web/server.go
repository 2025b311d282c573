package web

import (
	"net/http"
	"time"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/events"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/session"
)

// A Server serves HTTP requests. It is safe for concurrent use.
type Server struct {
	Options
	streams streams
}

// Options configures a Server.
type Options struct {
	Gate      *gate.Gate
	Balancers Balancers
	Sessions  *session.Store[SignedIn]
	Events    *events.Hub

	Complete func() bool     // reports whether the target contains all of its saved configuration
	Stopping <-chan struct{} // closed when the server begins to stop
	Console  http.Handler    // nil if the console is not served
	Messages http.Handler    // opens message streams; nil if they are not served

	UnreadBodyWait time.Duration // see skipBody; 0 selects the default
	StreamCheck    time.Duration // see streamCheckInterval; 0 selects the default
}

// New returns a Server.
func New(o Options) *Server {
	if o.UnreadBodyWait == 0 {
		o.UnreadBodyWait = unreadBodyWait
	}
	if o.StreamCheck == 0 {
		o.StreamCheck = streamCheckInterval
	}
	return &Server{Options: o}
}

// A SignedIn is the part of a console session that describes the sign-in.
type SignedIn struct {
	Binding authn.Binding
	Way     string // how the user signed in, as the console displays it
}
