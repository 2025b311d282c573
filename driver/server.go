package driver

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/spdkgate/spdkgate/driver/metrics"
)

// A Server serves the services that it has on one UNIX socket.
type Server struct {
	Identity   *Identity
	Controller csi.ControllerServer // nil where this is no controller
	Node       csi.NodeServer       // nil where this is no node
	Log        *slog.Logger
	Metrics    *metrics.Metrics // nil: none
	// SlowAfter is after how long a call that has not ended is logged; 30 s when zero.
	SlowAfter time.Duration
	// Drain bounds the wait for calls in flight when the server stops; 20 s when zero, less than Kubernetes' 30 s.
	Drain time.Duration
}

// Serve serves until ctx ends; then it takes no new calls, and waits for those in flight.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	calls := &calls{log: s.Log, metrics: s.Metrics, slowAfter: s.SlowAfter}
	if calls.slowAfter == 0 {
		calls.slowAfter = 30 * time.Second
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(calls.intercept))
	csi.RegisterIdentityServer(server, s.Identity)
	if s.Controller != nil {
		csi.RegisterControllerServer(server, s.Controller)
	}
	if s.Node != nil {
		csi.RegisterNodeServer(server, s.Node)
	}
	stopped := make(chan struct{})
	served := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
			s.stop(server)
		case <-served:
		}
	}()
	err := server.Serve(l)
	close(served)
	<-stopped
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve CSI on %s: %w", l.Addr(), err)
}

func (s *Server) stop(server *grpc.Server) {
	drain := s.Drain
	if drain == 0 {
		drain = 20 * time.Second
	}
	// Callers repeat calls that were ended, and the repeated call continues where the first one stopped.
	cutOff := time.AfterFunc(drain, func() {
		s.Log.Warn("drain time is over, ending the calls in flight", "after", drain)
		server.Stop()
	})
	defer cutOff.Stop()
	server.GracefulStop()
}
