package target

import (
	"context"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Direct is a connection for those of the proxy's own calls that must not wait for a slot. It
// never reconnects, so all calls on a Direct reach the same process of the target, or fail.
type Direct struct {
	socket  *spdkrpc.Socket
	gone    <-chan struct{}
	release rpcschema.Release
}

// Dial connects to the target. The error is a *DownError, which means that nothing was executed.
func (t *Target) Dial(ctx context.Context) (*Direct, error) {
	ctx, cancel := context.WithTimeout(ctx, t.connectWait)
	defer cancel()
	socket, gone, release, err := t.open(ctx)
	if err != nil {
		return nil, &DownError{Socket: t.config.Socket, Err: err}
	}
	return &Direct{socket: socket, gone: gone, release: release}, nil
}

// Release returns the release of the target at the other end.
func (d *Direct) Release() rpcschema.Release { return d.release }

// Gone returns a channel that is closed when the connection has ended.
func (d *Direct) Gone() <-chan struct{} { return d.gone }

// Call makes one call. It implements spdkrpc.Caller.
func (d *Direct) Call(ctx context.Context, method string, params, result any) error {
	return d.socket.Call(ctx, method, params, result)
}

// Close closes the connection. Running calls end with spdkrpc.OutcomeUnknown.
func (d *Direct) Close() error { return d.socket.Close() }
