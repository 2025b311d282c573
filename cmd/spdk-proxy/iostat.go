package main

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const iostatMethod = "bdev_get_iostat"

// maxIONames is how many names SPDK accepts in one call.
const maxIONames = 1024

// An ioStat holds what responses of bdev_get_iostat contain both for all bdevs and for single ones.
type ioStat struct {
	TickRate json.RawMessage   `json:"tick_rate"`
	Ticks    json.RawMessage   `json:"ticks"`
	Bdevs    []json.RawMessage `json:"bdevs"`
}

// askIO reads the I/O statistics of all bdevs. A tenant may query only its own bdevs, by name, so
// it gets those of its volumes.
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
	atOnce := 1
	if release.Has(rpcschema.CountsIOByNames) {
		atOnce = maxIONames
	}
	var all ioStat
	for some := range slices.Chunk(names, atOnce) {
		params := map[string]any{"names": some}
		if atOnce == 1 {
			params = map[string]any{"name": some[0]}
		}
		raw, err := r.ask(ctx, iostatMethod, params)
		if err != nil {
			return nil, err
		}
		var part ioStat
		if err := json.Unmarshal(raw, &part); err != nil {
			return nil, err
		}
		all.TickRate, all.Ticks, all.Bdevs = part.TickRate, part.Ticks, append(all.Bdevs, part.Bdevs...)
	}
	return json.Marshal(all)
}
