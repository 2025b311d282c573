package execute

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"

	"github.com/spdkgate/spdkgate/lvstore/changes"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A changesReader reads which clusters differ between two snapshots.
type changesReader struct {
	reader changes.Reader
	slots  *target.Slots
}

// These constants limit concurrent reads of changes. Each read occupies up to 16 MiB with metadata
// before it can compute and reserve the amount that it needs (see Command.Reserve).
const (
	maxChanges          = 4
	maxChangesOfAnOwner = 2 // a tenant, or a user without a tenant
)

// newChangesReader returns a changesReader whose calls wait for a slot until their deadlines. The
// running reads end earlier, and the next free slot goes to an owner without a read. Therefore, a
// few owners cannot keep all slots from the others.
func newChangesReader() *changesReader {
	return &changesReader{slots: target.NewSlots(target.Limits{Total: maxChanges, PerUser: maxChangesOfAnOwner}, math.MaxInt64)}
}

// ReadChanges serves spdkgate_lvol_changes. It returns at its deadline even if the lvstore's device
// does not respond. The locks and the slot are not released until the device responds.
func (e *Executor) ReadChanges(ctx context.Context, c Command) (json.RawMessage, error) {
	p, err := paramsOf[spdkrpc.SpdkgateLvolChangesParams](c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout(c.Method.Name))
	defer cancel()
	leave, err := e.changes.slots.Acquire(ctx, c.owner())
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errChangesBusy
	}
	if err != nil {
		return nil, err
	}
	type outcome struct {
		result json.RawMessage
		err    error
	}
	done := make(chan outcome, 1)
	go e.Contain(c.Method.Name, func() {
		defer leave()
		o := outcome{err: errNoOutcome}
		defer func() { done <- o }()
		release := func() {}
		defer func() { release() }()
		t := e.changesTarget(c)
		if c.Reserve != nil {
			t.Reserve = func(bytes int) (err error) {
				release()
				if release, err = c.Reserve(bytes); err != nil {
					release = func() {}
				}
				return err
			}
		}
		read := e.changes.reader.Read
		if value(p.AllowVolume) {
			read = e.changes.reader.ReadVolume
		}
		var found *changes.Changes
		if found, o.err = read(ctx, t, p.Snapshot, value(p.Base)); o.err == nil {
			o.result, o.err = json.Marshal(spdkrpc.ProxyLvolChanges{
				Bitmap: base64.StdEncoding.EncodeToString(found.Bitmap), ClusterSize: uint64(found.ClusterSize), Size: uint64(found.Size), LUKS: found.LUKS, Counted: found.Counted,
			})
		}
	})
	select {
	case o := <-done:
		if o.err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, errDeviceSlow
		}
		return o.result, e.errorFor(c, o.err)
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, errDeviceSlow
		}
		return nil, ctx.Err()
	}
}

// errorFor returns the part of the error that the caller may see. Paths on the target's host and
// names of bdevs below lvstores appear only in the log, so that tenants do not see them.
func (e *Executor) errorFor(c Command, err error) error {
	refused, ok := errors.AsType[*changes.Refusal](err)
	if !ok || c.Tenant == nil {
		return err
	}
	e.Log.Warn("changes of a tenant's snapshot were not read", "user", c.User, "snapshot", c.Params["snapshot"], "base", c.Params["base"], "error", err)
	return refused.ForTenant()
}

var (
	errNoOutcome   = errors.New("reading the changes failed")
	errChangesBusy = &quiesce.BusyError{Why: "other calls were reading changes until this call's deadline"}
	errDeviceSlow  = &quiesce.BusyError{Why: "the metadata of the lvstore could not be read in time; a retry continues where this call stopped"}
)

func (e *Executor) changesTarget(c Command) changes.Target {
	return changes.Target{RPC: spdkrpc.NewClient(ownCaller{c}), Release: c.Conn.Release(), AcceptUncounted: c.AcceptUncounted, Lock: e.quiescer.WhileRead}
}

// An ownCaller makes the calls that a command needs.
type ownCaller struct{ Command }

// Call returns the result of spdk_get_version without calling SPDK, because the connection's
// release is known.
func (o ownCaller) Call(ctx context.Context, method string, params, result any) error {
	var raw json.RawMessage
	if method == "spdk_get_version" {
		raw = json.RawMessage(`{"version": "SPDK ` + o.Conn.Release().String() + `"}`)
	} else {
		var asked map[string]any
		if params != nil {
			text, err := jsonrpc.Marshal(params)
			if err == nil {
				err = json.Unmarshal(text, &asked)
			}
			if err != nil {
				return err
			}
		}
		var err error
		if raw, err = o.Ask(ctx, method, asked); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.Failed, Message: "the result does not match the schema", Err: err}
	}
	return nil
}

// value returns *p, or the zero value if p is nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
