package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/outage"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// calls intercepts every gRPC call. It assigns an id to the call, logs and counts the call, and
// converts panics into errors and errors into gRPC statuses.
type calls struct {
	log       *slog.Logger
	metrics   *metrics.Metrics
	outages   *outage.Log
	slowAfter time.Duration
}

func (c *calls) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	call := c.begin(ctx, info.FullMethod)
	call.received(req)
	resp, err = c.recoverPanic(call.log, func() (any, error) { return handler(volume.AskOnce(ctx), req) })
	return resp, call.end(err)
}

// A call describes a running call.
type call struct {
	*calls
	ctx    context.Context
	method string // full gRPC method name
	name   string
	start  time.Time
	ended  func(code string)
	slow   *time.Timer

	mu  sync.Mutex
	log *slog.Logger
	req any // nil until received
}

func (c *calls) begin(ctx context.Context, method string) *call {
	name := path.Base(method)
	r := &call{calls: c, ctx: ctx, method: method, name: name, start: time.Now(), ended: c.metrics.Begin(name), log: c.log.With("method", name, "request_id", uuid.NewString()[:8])}
	r.slow = time.AfterFunc(c.slowAfter, func() {
		log, volumeID := r.about()
		log.Log(ctx, c.during(slog.LevelWarn, targetOf(nil, volumeID)), "call is slow", "after", c.slowAfter)
	})
	return r
}

// received records the request.
func (r *call) received(req any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.req, r.log = req, r.log.With(subject(req)...)
	r.log.DebugContext(r.ctx, "call", "request", protosanitizer.StripSecrets(req))
}

// about returns the call's logger, and the id of its volume or snapshot.
func (r *call) about() (log *slog.Logger, volumeID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log, volumeOf(r.req)
}

// end logs and counts the end of a call, and returns its error as a gRPC status.
func (r *call) end(failed error) error {
	r.slow.Stop()
	log, volumeID := r.about()
	err := Status(failed)
	r.ended(status.Code(err).String())
	level := slog.LevelInfo
	switch {
	case err != nil:
		level = r.level(failed, r.name, volumeID)
		log = log.With("error", logText(failed))
	case isQuery(r.method):
		level = slog.LevelDebug
	}
	if err == nil {
		r.outages.Succeeded(targetOf(nil, volumeID), r.name)
	}
	log.Log(r.ctx, level, "call ended", "code", status.Code(err).String(), "took", time.Since(r.start))
	return err
}

// level returns the log level for a failed call. The level is warn unless an earlier line has
// already reported the same target failure.
func (c *calls) level(failed error, method, volumeID string) slog.Level {
	target, kind := Outage(failed, volumeID)
	switch {
	case errors.Is(failed, request.ErrInFlight): // the lock's owner is waiting for a target
		return c.during(slog.LevelWarn, target)
	case kind != "" && !c.outages.Failed(target, kind, method, logText(failed)):
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// during returns the debug level while calls to a target are failing, and usual otherwise. Use it
// for lines that add no information during an outage. An empty target means any target.
func (c *calls) during(usual slog.Level, target string) slog.Level {
	if c.outages.Ongoing(target) {
		return slog.LevelDebug
	}
	return usual
}

// recoverPanic converts a panic into an error, so that a panic in one call does not end the
// process.
func (c *calls) recoverPanic(log *slog.Logger, call func() (any, error)) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("panic", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			resp, err = nil, status.Error(codes.Internal, "the driver has a bug: see its log for the panic")
		}
	}()
	return call()
}

// volumeOf returns the id of the volume or snapshot in a request, or "" if there is none.
func volumeOf(req any) string {
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		return r.GetVolumeId()
	}
	if r, ok := req.(interface{ GetSnapshotId() string }); ok {
		return r.GetSnapshotId()
	}
	if r, ok := req.(interface{ GetTargetSnapshotId() string }); ok {
		return r.GetTargetSnapshotId()
	}
	return ""
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
	if r, ok := req.(*csi.GetMetadataDeltaRequest); ok {
		add("snapshot", r.GetTargetSnapshotId())
		add("base", r.GetBaseSnapshotId())
	}
	if r, ok := req.(interface{ GetName() string }); ok {
		add("name", r.GetName())
	}
	if r, ok := req.(interface{ GetNodeId() string }); ok {
		add("node", r.GetNodeId())
	}
	return attrs
}

// isQuery reports whether a method is read-only and is called every few seconds.
func isQuery(method string) bool {
	name := path.Base(method)
	return strings.Contains(name, "Get") || strings.HasPrefix(name, "List") || name == "Probe" || name == "Check"
}
