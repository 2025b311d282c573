package driver

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/spdkgate/spdkgate/driver/metrics"
)

// A Server serves CSI services on one UNIX socket.
type Server struct {
	Identity   *Identity
	Controller csi.ControllerServer      // nil if this process is no controller
	Groups     csi.GroupControllerServer // nil if this process is no controller
	Node       csi.NodeServer            // nil if this process serves no node
	Log        *slog.Logger
	Metrics    *metrics.Metrics // nil to count nothing
	// SlowAfter is how long a call runs before it is logged as slow. Zero means 30 s.
	SlowAfter time.Duration
	// Drain bounds the wait for calls in flight when the server stops. Zero means 20 s, less than Kubernetes' 30 s.
	Drain time.Duration
}

// Serve serves until ctx ends. Then it accepts no new calls, and waits for those in flight.
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
	if s.Groups != nil {
		csi.RegisterGroupControllerServer(server, s.Groups)
	}
	if s.Node != nil {
		csi.RegisterNodeServer(server, s.Node)
	}
	// Tools for people and probes: grpcurl lists and calls methods, grpc-health-probe asks whether the process serves. Like
	// Probe, the answer does not depend on targets.
	reflection.Register(server)
	state := health.NewServer()
	healthpb.RegisterHealthServer(server, state)
	stopped := make(chan struct{})
	served := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
			state.Shutdown() // not serving any more, for those that ask while calls end
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
	// Callers repeat calls that are cut off, and the repeated call continues where the first one stopped.
	cutOff := time.AfterFunc(drain, func() {
		s.Log.Warn("drain time is over: cutting off the calls in flight", "after", drain)
		server.Stop()
	})
	defer cutOff.Stop()
	server.GracefulStop()
}
