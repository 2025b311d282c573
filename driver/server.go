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
	"github.com/spdkgate/spdkgate/driver/outage"
)

// A Server serves CSI services on one UNIX socket.
type Server struct {
	Identity   *Identity
	Controller csi.ControllerServer       // nil if this process is not a controller
	Groups     csi.GroupControllerServer  // nil if this process is not a controller
	Metadata   csi.SnapshotMetadataServer // nil if this process does not serve snapshot metadata
	Node       csi.NodeServer             // nil if this process is not a node plugin
	Log        *slog.Logger
	Metrics    *metrics.Metrics // nil for no metrics
	// Outages records the calls that fail because a target is down. If Outages is nil, the server
	// creates its own.
	Outages *outage.Log
	// SlowAfter is the duration after which a running call is logged as slow. Zero means 30 s.
	SlowAfter time.Duration
	// Drain limits the wait for calls in flight when the server stops. Zero means 20 s, which is
	// less than the grace period of 30 s in Kubernetes.
	Drain time.Duration
	// Linger is how long a stopping server must have been idle before it stops accepting calls. The
	// server waits at most half of Drain. If Linger is zero, the server stops accepting calls
	// immediately.
	//
	// Kubernetes stops a pod's sidecars at the same time as the driver. The sidecars complete their
	// work, which requires further calls, and then release their leases. If the driver stops
	// earlier, the sidecars exit without releasing their leases, and there is no leader until the
	// leases expire.
	Linger time.Duration
}

// Serve serves calls until ctx ends. Serve then waits until the server is idle (see Linger), stops
// accepting calls, and waits for the calls in flight to complete.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	calls := &calls{log: s.Log, metrics: s.Metrics, outages: s.Outages, slowAfter: s.SlowAfter}
	if calls.outages == nil {
		calls.outages = outage.New(s.Log, nil)
	}
	if calls.slowAfter == 0 {
		calls.slowAfter = 30 * time.Second
	}
	clients := &clients{}
	server := grpc.NewServer(grpc.UnaryInterceptor(calls.intercept), grpc.StreamInterceptor(calls.interceptStream), grpc.StatsHandler(clients))
	csi.RegisterIdentityServer(server, s.Identity)
	if s.Controller != nil {
		csi.RegisterControllerServer(server, s.Controller)
	}
	if s.Groups != nil {
		csi.RegisterGroupControllerServer(server, s.Groups)
	}
	if s.Metadata != nil {
		csi.RegisterSnapshotMetadataServer(server, s.Metadata)
	}
	if s.Node != nil {
		csi.RegisterNodeServer(server, s.Node)
	}
	// Reflection lets people list and call methods with grpcurl. Health checks let probes such as
	// grpc-health-probe check whether the process is serving. As with Probe, their result does not
	// depend on targets.
	reflection.Register(server)
	state := health.NewServer()
	healthpb.RegisterHealthServer(server, state)
	stopped := make(chan struct{})
	served := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
			state.Shutdown() // health checks return "not serving" while the last calls complete
			s.stop(server, clients)
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

func (s *Server) stop(server *grpc.Server, clients *clients) {
	drain := s.Drain
	if drain == 0 {
		drain = 20 * time.Second
	}
	// Cutting off calls is safe, because callers repeat the calls, and a repeated call continues
	// where the first call stopped.
	cutOff := time.AfterFunc(drain, func() {
		s.Log.Warn("drain time is over: cutting off the calls in flight", "after", drain)
		server.Stop()
	})
	defer cutOff.Stop()
	if s.Linger > 0 {
		clients.linger(s.Linger, drain/2)
	}
	server.GracefulStop()
}
