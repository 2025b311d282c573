package observe

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// ReadFigures reads the target's figures once. Like users' calls, its calls wait for slots.
func (o *Observer) ReadFigures(ctx context.Context) (made *figures.Figures) {
	o.Gate.Contain("figures", func() {
		t := o.targetToRead(ctx)
		made = o.reader.Read(ctx, t)
		o.readTenants(ctx, t, made)
		o.histogramLog.note(made, o.Gate.Log)
	})
	return made
}

func (o *Observer) targetToRead(ctx context.Context) figures.Target {
	probing, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	seen, err := o.Gate.Target.Probe(probing)
	t := figures.Target{Up: err == nil && seen.Phase == target.Runtime, Phase: string(seen.Phase), Release: seen.Release, Restarts: seen.Reconnects}
	if err != nil {
		t.Phase = string(target.Unreachable)
	}
	if !t.Up {
		return t
	}
	conn, err := o.Gate.Target.Connect(ctx, "")
	if err != nil {
		t.Up, t.Phase = false, string(target.Unreachable)
		return t
	}
	t.Release = conn.Release()
	t.Ask = func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
		result, err := conn.Call(ctx, "", method, params, figuresCallWait)
		var down *target.DownError
		if errors.As(err, &down) {
			return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.Unreachable, Err: err}
		}
		return result, err
	}
	return t
}
