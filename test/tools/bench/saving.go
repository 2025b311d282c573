package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A saving holds the figures for changes to who can access data, for one number of calls in flight.
type saving struct {
	inFlight      int
	without, with figures // target.save
}

// savingSpan is the duration of each measurement with and without saving. These measurements,
// unlike all others, are made only once.
const savingSpan = 2 * time.Second

// admit admits the worker's own host to the subsystem, and removes it again.
var admit = work{"admit", func(ctx context.Context, c spdkrpc.Caller, worker int) error {
	host := params{"nqn": nqn, "host": fmt.Sprintf("nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-%012d", worker)}
	if err := c.Call(ctx, "nvmf_subsystem_add_host", host, nil); err != nil {
		return err
	}
	return c.Call(ctx, "nvmf_subsystem_remove_host", host, nil)
}}

// measureSaving compares a proxy that does not save with one that saves before it responds.
func measureSaving(ctx context.Context, r *report, without *proxy, socket string, o options) (err error) {
	with, err := startProxy(ctx, socket, o.proxy, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, with.stop()) }()
	for _, n := range []int{1, volumesInFlight} {
		x := saving{inFlight: n}
		if x.without, err = measureProxy(ctx, without, user, admit, n, savingSpan); err != nil {
			return err
		}
		if x.with, err = measureProxy(ctx, with, user, admit, n, savingSpan); err != nil {
			return err
		}
		r.saving = append(r.saving, x)
	}
	return nil
}
