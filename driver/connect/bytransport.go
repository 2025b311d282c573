package connect

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// transport attaches exports of one kind: NVMe, iSCSI or loop devices. All methods except find and
// paths run one at a time for each target, and their contexts have a deadline.
type transport interface {
	connect(ctx context.Context, e Export, step *operation.Step) (Device, error)
	find(e Export) (Device, error)
	disconnect(ctx context.Context, e Export, step *operation.Step) error
	rescan(ctx context.Context, e Export, wantBytes int64, step *operation.Step) (int64, error)
	paths(e Export) (Paths, error)
	reconnect(ctx context.Context, e Export, step *operation.Step) error
}

// byTransport implements Connector. It selects the transport, sets the deadline, locks the target,
// adds the operation to errors, and logs the operation.
type byTransport struct {
	transports map[Transport]transport
	operations operation.Group
	timeout    time.Duration
	log        *slog.Logger
}

func newByTransport(h Host, o Options) *byTransport {
	n := newNode(o.Root)
	fabrics := &nvme{node: n, host: h, options: o.NVMe, exec: o.Exec, log: o.Log, view: sharedView{age: viewAge}}
	return connectorOf(o.Timeout, o.Log, map[Transport]transport{
		TCP:   fabrics,
		RDMA:  fabrics,
		ISCSI: &iscsi{node: n, host: h, exec: o.Exec, log: o.Log},
		Loop:  &loop{node: n, host: h, allowed: o.AllowLoop},
	})
}

func connectorOf(timeoutOfCalls time.Duration, log *slog.Logger, transports map[Transport]transport) *byTransport {
	return &byTransport{
		transports: transports, timeout: timeoutOfCalls, log: log,
		operations: operation.Group{Busy: ErrBusy, Wait: true, Cause: timeout},
	}
}

func (c *byTransport) Connect(ctx context.Context, e Export) (Device, error) {
	return operate(ctx, c, "connect", e, func(ctx context.Context, t transport, step *operation.Step) (Device, error) {
		return t.connect(ctx, e, step)
	})
}

func (c *byTransport) Find(ctx context.Context, e Export) (Device, error) {
	return query(ctx, c, "find", e, func(t transport) (Device, error) { return t.find(e) })
}

func (c *byTransport) Disconnect(ctx context.Context, e Export) error {
	_, err := operate(ctx, c, "disconnect", e, func(ctx context.Context, t transport, step *operation.Step) (struct{}, error) {
		return struct{}{}, t.disconnect(ctx, e, step)
	})
	return err
}

func (c *byTransport) Rescan(ctx context.Context, e Export, wantBytes int64) (int64, error) {
	return operate(ctx, c, "rescan", e, func(ctx context.Context, t transport, step *operation.Step) (int64, error) {
		return t.rescan(ctx, e, wantBytes, step)
	})
}

func (c *byTransport) of(e Export) (transport, error) {
	if t, ok := c.transports[e.Transport]; ok {
		return t, nil
	}
	return nil, fmt.Errorf("%w: unknown transport %q", ErrInvalidExport, e.Transport)
}

func operate[T any](ctx context.Context, c *byTransport, name string, e Export, fn func(context.Context, transport, *operation.Step) (T, error)) (T, error) {
	start := time.Now()
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	t, err := c.of(e)
	var v T
	if err == nil {
		v, err = operation.Run(ctx, &c.operations, []string{e.Target()}, func(ctx context.Context, step *operation.Step) (T, error) {
			ctx, cancel := earlier(ctx)
			defer cancel()
			return fn(ctx, t, step)
		})
	}
	if err != nil {
		return v, fmt.Errorf("%s %v: %w", name, e, err)
	}
	c.log.Info("device operation", "operation", name, "transport", e.Transport, "target", e.Target(), "uuid", e.NSUUID, "took", time.Since(start), "result", v)
	return v, nil
}
