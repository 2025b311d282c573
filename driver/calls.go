package driver

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// calls is the interceptor of every call: it gives the call an id, logs and counts it, and converts a panic to an error and
// the error to a gRPC status.
type calls struct {
	log       *slog.Logger
	metrics   *metrics.Metrics
	slowAfter time.Duration
}

func (c *calls) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	start := time.Now()
	log := c.log.With("method", path.Base(info.FullMethod), "request_id", uuid.NewString()[:8])
	log = log.With(subject(req)...)
	log.DebugContext(ctx, "call", "request", protosanitizer.StripSecrets(req))
	slow := time.AfterFunc(c.slowAfter, func() { log.Warn("call is slow", "after", c.slowAfter) })
	defer slow.Stop()
	ended := c.metrics.Begin(path.Base(info.FullMethod))

	resp, err = c.recoverPanic(log, func() (any, error) { return handler(volume.AskOnce(ctx), req) })
	err = Status(err)
	ended(status.Code(err).String())
	level := slog.LevelInfo
	switch {
	case err != nil:
		level = slog.LevelWarn
		log = log.With("error", status.Convert(err).Message())
	case isQuery(info.FullMethod):
		level = slog.LevelDebug
	}
	log.Log(ctx, level, "call ended", "code", status.Code(err).String(), "took", time.Since(start))
	return resp, err
}

// recoverPanic converts a panic to an error, so that one call does not end all others.
func (c *calls) recoverPanic(log *slog.Logger, call func() (any, error)) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("panic", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			resp, err = nil, status.Error(codes.Internal, "the driver has a bug: see its log for the panic")
		}
	}()
	return call()
}

// subject returns the ids and names in a request, as attributes for the log.
func subject(req any) (attrs []any) {
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, key, value)
		}
	}
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		add("volume", r.GetVolumeId())
	}
	if r, ok := req.(interface{ GetSnapshotId() string }); ok {
		add("snapshot", r.GetSnapshotId())
	}
	if r, ok := req.(interface{ GetName() string }); ok {
		add("name", r.GetName())
	}
	if r, ok := req.(interface{ GetNodeId() string }); ok {
		add("node", r.GetNodeId())
	}
	return attrs
}

// isQuery tells whether a method is one that callers use every few seconds and that changes nothing.
func isQuery(method string) bool {
	name := path.Base(method)
	return strings.Contains(name, "Get") || strings.HasPrefix(name, "List") || name == "Probe" || name == "Check"
}
