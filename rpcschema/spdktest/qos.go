package spdktest

import (
	"math"
	"slices"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	iopsStep       = 1000
	maxMiBPerSec   = math.MaxUint64 >> 20
	limitUndefined = math.MaxUint64
)

func init() {
	confirm("bdev_set_qos_limit", (*engine).bdevSetQoSLimit)
	handle("bdev_get_iostat", (*engine).bdevGetIostat)
	confirm("bdev_reset_iostat", (*engine).bdevResetIostat)
	confirm("bdev_set_qd_sampling_period", (*engine).bdevSetQDSamplingPeriod)
}

func (e *engine) bdevSetQoSLimit(p spdkrpc.BdevSetQoSLimitParams) error {
	b, ok := e.bdevs.find(p.Name)
	if !ok {
		return errno(syscall.ENODEV)
	}
	limits, given := b.limits, false
	for _, l := range []struct {
		asked *uint64
		into  *uint64
		iops  bool
	}{
		{p.RWIOsPerSec, &limits.RWIOsPerSec, true}, {p.RWMbytesPerSec, &limits.RWMbytesPerSec, false},
		{p.RMbytesPerSec, &limits.RMbytesPerSec, false}, {p.WMbytesPerSec, &limits.WMbytesPerSec, false},
	} {
		if l.asked == nil || *l.asked == limitUndefined {
			continue
		}
		given = true
		if *l.into = min(*l.asked, maxMiBPerSec); l.iops {
			*l.into = divideUp(*l.asked, iopsStep) * iopsStep
		}
	}
	if !given {
		return jsonrpc.Errorf(-int(syscall.EINVAL), "No rate limits specified")
	}
	// Since v25.09, if a bdev with limits has no I/O, opening it restarts its limiter.
	// bdev_set_qos_limit itself opens the bdev, so SPDK refuses the change because the limiter is
	// still being started.
	idle := !slices.ContainsFunc(b.users, func(u *bdevUser) bool { return u.channel })
	if b.limits != (spdkrpc.BdevRateLimits{}) && idle && !e.before("v25.09") {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Failed to configure rate limit: %s", strerror(syscall.EAGAIN))
	}
	b.limits = limits
	return nil
}

// limitParams returns the parameters that set a bdev's current limits.
func limitParams(b *bdev) spdkrpc.BdevSetQoSLimitParams {
	given := func(limit uint64) *uint64 {
		if limit == 0 {
			return nil
		}
		return &limit
	}
	return spdkrpc.BdevSetQoSLimitParams{
		Name: b.name, RWIOsPerSec: given(b.limits.RWIOsPerSec), RWMbytesPerSec: given(b.limits.RWMbytesPerSec),
		RMbytesPerSec: given(b.limits.RMbytesPerSec), WMbytesPerSec: given(b.limits.WMbytesPerSec),
	}
}

// resets reports whether the release supports a mode of resetting statistics.
func (e *engine) resets(mode spdkrpc.BdevResetStatMode) bool {
	s := rpcschema.Default().Schemas()["BdevResetStatMode"]
	return slices.Contains(s.Enum, any(string(mode))) && s.HasValue(string(mode), e.release)
}

// iostatParams combines the parameters of all releases.
type iostatParams struct {
	spdkrpc.BdevGetIOStatParams
	Name *string `json:"name"`
}

// bdevGetIostat reports the I/O that Target.DoIO has recorded, because the simulation has no data
// plane.
func (e *engine) bdevGetIostat(p iostatParams) (spdkrpc.BdevIOStat, error) {
	out := spdkrpc.BdevIOStat{TickRate: tickRate, Ticks: ticks()}
	names := p.Names
	if p.Name != nil {
		if p.Names != nil {
			return out, errno(syscall.EINVAL)
		}
		names = []string{*p.Name}
	}
	if p.ResetMode != nil && !e.resets(*p.ResetMode) {
		return out, jsonrpc.Errorf(jsonrpc.CodeInternalError, "spdk_json_decode_object failed")
	}
	if value(p.PerChannel) && len(names) != 1 {
		return out, errno(syscall.EINVAL)
	}
	bdevs := e.bdevs.all
	if names != nil {
		bdevs = nil
		for _, name := range names {
			b, ok := e.bdevs.find(name)
			if !ok {
				return out, errno(syscall.ENODEV)
			}
			bdevs = append(bdevs, b)
		}
	}
	if value(p.PerChannel) {
		out.Name, out.Channels = new(bdevs[0].name), []spdkrpc.BdevIOStatChannel{}
		return out, nil
	}
	out.Bdevs = []spdkrpc.BdevIOStatBdev{}
	for _, b := range bdevs {
		stat := b.stat
		stat.Name, stat.IOError = b.name, map[string]uint32{}
		if b.samplingPeriod > 0 {
			stat.QueueDepthPollingPeriod = new(b.samplingPeriod)
			stat.QueueDepth, stat.IOTime, stat.WeightedIOTime = new(uint64(0)), new(uint64(0)), new(uint64(0))
		}
		out.Bdevs = append(out.Bdevs, stat)
	}
	return out, nil
}

func (e *engine) bdevResetIostat(p spdkrpc.BdevResetIOStatParams) error {
	if !e.resets(or(p.Mode, "all")) {
		return jsonrpc.Errorf(jsonrpc.CodeInternalError, "spdk_json_decode_object failed")
	}
	if p.Name != nil {
		b, ok := e.bdevs.find(*p.Name)
		if ok {
			b.stat = spdkrpc.BdevIOStatBdev{}
		}
		return orMissing(ok)
	}
	for _, b := range e.bdevs.all {
		b.stat = spdkrpc.BdevIOStatBdev{}
	}
	return nil
}

func (e *engine) bdevSetQDSamplingPeriod(p spdkrpc.BdevSetQDSamplingPeriodParams) error {
	b, ok := e.bdevs.find(p.Name)
	if !ok {
		return errno(syscall.ENODEV)
	}
	b.samplingPeriod = p.Period
	return nil
}
