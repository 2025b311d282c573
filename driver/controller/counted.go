package controller

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/outage"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// counted is a Caller that counts its calls to one target, and adds the target's name to errors.
type counted struct {
	spdkrpc.Caller
	target  string
	host    string // the proxy's host
	metrics *metrics.Metrics
	outages *outage.Log
}

func (c counted) Call(ctx context.Context, method string, params, result any) error {
	began := time.Now()
	err := c.Caller.Call(ctx, method, params, result)
	outcome := strings.ReplaceAll(string(spdkrpc.KindOf(err)), " ", "_")
	c.metrics.TargetCall(c.target, method, cmp.Or(outcome, "ok"), time.Since(began))
	lost := errors.Is(err, spdkrpc.Unreachable) || errors.Is(err, spdkrpc.OutcomeUnknown)
	if !lost || ctx.Err() == nil { // a canceled call reveals nothing about the target
		c.metrics.TargetUp(c.target, !lost)
	}
	if !lost && !errors.Is(err, spdkrpc.ErrCredentials) {
		c.outages.Answered(c.target)
	}
	return targetError(c.target, c.host, err)
}
