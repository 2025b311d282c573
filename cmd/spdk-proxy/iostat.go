package main

import (
	"context"
	"encoding/json"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const iostatMethod = "bdev_get_iostat"

// manyNames is the first release whose bdev_get_iostat accepts several names.
var manyNames = rpcschema.MustRelease("v26.05")

// An ioStat is the part of an answer of bdev_get_iostat that answers about single bdevs have in common.
type ioStat struct {
	TickRate json.RawMessage   `json:"tick_rate"`
	Ticks    json.RawMessage   `json:"ticks"`
	Bdevs    []json.RawMessage `json:"bdevs"`
}

// askIO asks for the I/O statistics of all bdevs. A tenant may ask about its own bdevs only, by their
// names, so that it gets those of its volumes.
func (r *remote) askIO(ctx context.Context, release rpcschema.Release) (json.RawMessage, error) {
	raw, refused := r.ask(ctx, iostatMethod, nil)
	if spdkrpc.KindOf(refused) != spdkrpc.Denied {
		return raw, refused
	}
	raw, err := r.ask(ctx, "bdev_lvol_get_lvols", nil)
	if err != nil {
		return nil, err
	}
	var volumes []struct {
		UUID string `json:"uuid"`
	}
	if err := json.Unmarshal(raw, &volumes); err != nil || len(volumes) == 0 {
		return nil, refused
	}
	names := make([]string, len(volumes))
	for i, v := range volumes {
		names[i] = v.UUID
	}
	if !release.Before(manyNames) {
		return r.ask(ctx, iostatMethod, map[string]any{"names": names})
	}
	var all ioStat
	for _, name := range names {
		raw, err := r.ask(ctx, iostatMethod, map[string]any{"name": name})
		if err != nil {
			return nil, err
		}
		var one ioStat
		if err := json.Unmarshal(raw, &one); err != nil {
			return nil, err
		}
		all.TickRate, all.Ticks, all.Bdevs = one.TickRate, one.Ticks, append(all.Bdevs, one.Bdevs...)
	}
	return json.Marshal(all)
}
