package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const iostatMethod = "bdev_get_iostat"

// maxIONames is the maximum number of bdev names that SPDK accepts in one call.
const maxIONames = 1024

// An ioStat is the result of bdev_get_iostat, for all bdevs or for a single bdev.
type ioStat struct {
	TickRate json.RawMessage   `json:"tick_rate"`
	Ticks    json.RawMessage   `json:"ticks"`
	Bdevs    []json.RawMessage `json:"bdevs"`
}

// askIO reads the I/O statistics of all bdevs. A tenant may query only its own bdevs, by name, so
// askIO reads the statistics of the tenant's volumes or, if all is set, of all its bdevs.
func (r *remote) askIO(ctx context.Context, release rpcschema.Release) (json.RawMessage, error) {
	raw, refused := r.ask(ctx, iostatMethod, nil)
	if spdkrpc.KindOf(refused) != spdkrpc.Denied {
		return raw, refused
	}
	for range 3 { // a bdev may be deleted between the two calls
		names, err := r.ownBdevs(ctx)
		if err != nil {
			return nil, err
		}
		if raw, err = r.askIOOf(ctx, release, names); err == nil || !errors.Is(err, spdkrpc.NoSuchDevice) {
			return raw, err
		}
		refused = err
	}
	return nil, refused
}

// ownBdevs returns the names of the bdevs that the user can see.
func (r *remote) ownBdevs(ctx context.Context) (names []string, err error) {
	method := "bdev_lvol_get_lvols"
	if r.all {
		method = "bdev_get_bdevs"
	}
	raw, err := r.ask(ctx, method, nil)
	if err != nil {
		return nil, err
	}
	var list []struct {
		Name string `json:"name"` // of a volume, not of its bdev
		UUID string `json:"uuid"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	for _, b := range list {
		if r.all {
			names = append(names, b.Name)
		} else {
			names = append(names, b.UUID)
		}
	}
	return names, nil
}

// askIOOf reads the I/O statistics of the named bdevs.
func (r *remote) askIOOf(ctx context.Context, release rpcschema.Release, names []string) (json.RawMessage, error) {
	atOnce := 1
	if release.Has(rpcschema.CountsIOByNames) {
		atOnce = maxIONames
	}
	all := ioStat{ // without bdevs, the target's clock is unknown, but no rates are needed
		TickRate: json.RawMessage("1000000000"), Ticks: strconv.AppendInt(nil, time.Now().UnixNano(), 10), Bdevs: []json.RawMessage{},
	}
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
