package execute

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// The proxy does not delete a volume while another call uses the volume, its parent or its clone.
// Otherwise, SPDK would remove the volume from its lists and then refuse the deletion. The volume's
// space would stay allocated, and the volume would reappear after a restart.

const (
	renameMethod      = "bdev_lvol_rename"
	renameStoreMethod = "bdev_lvol_rename_lvstore"
	deleteStoreMethod = "bdev_lvol_delete_lvstore"
	shallowCopyMethod = "bdev_lvol_start_shallow_copy"
	listLvolsMethod   = "bdev_lvol_get_lvols"
)

// forwardUntilSettled is like forward, for callers that hold locks until the channel settled is
// closed. The channel is closed when SPDK has responded, possibly after the call's deadline.
func (e *Executor) forwardUntilSettled(ctx context.Context, c Command) (result json.RawMessage, settled <-chan struct{}, err error) {
	done := make(chan struct{})
	c.Observer.Settled = sync.OnceFunc(func() { close(done) })
	result, err = e.forward(ctx, c)
	return result, done, err
}

// forwardShared forwards a call while holding a shared lock on the objects that it names. It first
// waits until no other call has an exclusive lock on any of them.
func (e *Executor) forwardShared(ctx context.Context, c Command) (json.RawMessage, error) {
	names := e.namedBy(c)
	if len(names) == 0 {
		return e.forward(ctx, c)
	}
	filled, err := e.filledBy(ctx, c)
	if err != nil {
		return nil, err
	}
	names = append(names, filled...)
	release, err := e.quiescer.Share(ctx, names)
	if err != nil {
		return nil, err
	}
	result, settled, err := e.forwardUntilSettled(ctx, c)
	if c.Method.Name == shallowCopyMethod && (err == nil || errors.Is(err, spdkrpc.OutcomeUnknown)) {
		go func() {
			<-settled
			e.awaitShallowCopy(c)
			release()
		}()
		return result, err
	}
	select {
	case <-settled:
		release()
	default:
		go func() {
			<-settled
			release()
		}()
	}
	return result, err
}

// writtenParam lists the methods that make SPDK's main thread write to a bdev after the call. It
// maps each method to the parameter that names the bdev.
var writtenParam = map[string]string{shallowCopyMethod: "dst_bdev_name", "nbd_start_disk": "bdev_name"}

// filledBy returns the names that a call must lock in addition to the objects that it names,
// because the call makes SPDK allocate clusters in an lvstore.
func (e *Executor) filledBy(ctx context.Context, c Command) (names []string, err error) {
	name, _ := c.Params[writtenParam[c.Method.Name]].(string)
	if name == "" {
		return nil, nil
	}
	b, err := e.bdev(ctx, c, name)
	if err == nil && b != nil && b.DriverSpecific.Lvol != nil && b.DriverSpecific.Lvol.LvolStoreUUID != nil {
		names = []string{quiesce.Filling(*b.DriverSpecific.Lvol.LvolStoreUUID)}
	}
	return names, err
}

// namedBy returns the names to lock for an SPDK call: the NQNs, bdevs and lvstores that it uses or
// changes.
func (e *Executor) namedBy(c Command) (names []string) {
	if !c.Method.Mutates && !c.Method.Pauses || c.Method.ServedBy == rpcschema.ServedByProxy {
		return nil
	}
	named, _ := e.Schema.Names(c.Method.Name, c.Params, maxNamedObjects)
	for _, n := range named {
		switch {
		case c.Method.Pauses && c.Conn.Release().Has(rpcschema.SetsANAGroup):
			names = append(names, quiesce.Draining(n.Value))
		case n.Kind == "nqn", n.Kind == "bdev":
			names = append(names, n.Value)
		case n.Kind == "lvstore", n.Kind == "lvstore-uuid":
			names = append(names, storeKey(n.Value))
		}
	}
	return names
}

// maxNamedObjects is the maximum number of a call's objects that are considered. No SPDK method
// that changes an export names more than two.
const maxNamedObjects = 64

// storeKey returns the lock key of an lvstore, given by name or UUID.
func storeKey(store string) string { return "lvstore " + strings.ToLower(store) }

func without(names []string, name string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return n == name })
}

// shallowCopyPoll is the interval at which the destination of a shallow copy is polled.
const shallowCopyPoll = 250 * time.Millisecond

// awaitShallowCopy waits until SPDK has finished a shallow copy, which continues after the call.
// Until then, SPDK claims the destination. awaitShallowCopy does not query the copy's status,
// because SPDK reports a final status only once.
func (e *Executor) awaitShallowCopy(c Command) {
	destination, _ := c.Params["dst_bdev_name"].(string)
	for range time.Tick(shallowCopyPoll) {
		select {
		case <-e.Stopped:
			return
		default:
		}
		conn, err := e.Target.Connect(context.Background(), "")
		if err != nil {
			continue // after a restart of the target, the copy is no longer running
		}
		c.Conn, c.User = conn, ""
		if b, err := e.bdev(context.Background(), c, destination); err == nil && (b == nil || !b.Claimed) {
			return
		}
	}
}

// renameLvol serves bdev_lvol_rename. No call that uses the volume by any of its names may run
// concurrently. For a snapshot, SPDK refuses the rename only after changing the bdev's alias, which
// then no longer matches the name that the snapshot's clones report. Therefore, the proxy itself
// refuses to rename snapshots and read-only volumes.
func (e *Executor) renameLvol(ctx context.Context, c Command) (result json.RawMessage, err error) {
	name, _ := c.Params["old_name"].(string)
	next, _ := c.Params["new_name"].(string)
	find := func(ctx context.Context) (names quiesce.Names, err error) {
		names.Exclusive = []string{name}
		b, err := e.bdev(ctx, c, name)
		if err != nil || b == nil || b.DriverSpecific.Lvol == nil {
			return names, err
		}
		if isReadOnly(b) {
			return names, &spdkrpc.Error{Method: renameMethod, Kind: spdkrpc.InvalidParams, Code: jsonrpc.CodeInvalidParams, Message: "Operation not permitted"}
		}
		names.Exclusive = append(append(names.Exclusive, b.Name), b.Aliases...)
		for _, alias := range b.Aliases {
			if store, _, ok := strings.Cut(alias, "/"); ok {
				names.Exclusive = append(names.Exclusive, store+"/"+next)
			}
		}
		return names, nil
	}
	err = e.quiescer.WhileLocked(ctx, find, func() (settled <-chan struct{}, err error) {
		result, settled, err = e.forwardUntilSettled(ctx, c)
		return settled, err
	})
	return result, err
}

// changeStore serves bdev_lvol_delete_lvstore, which deletes all volumes, and
// bdev_lvol_rename_lvstore, which changes the aliases of all volumes.
func (e *Executor) changeStore(ctx context.Context, c Command) (result json.RawMessage, err error) {
	find := func(ctx context.Context) (quiesce.Names, error) {
		names := quiesce.Names{Exclusive: e.namedBy(c)}
		if next, ok := c.Params["new_name"].(string); ok {
			names.Exclusive = append(names.Exclusive, storeKey(next))
		}
		volumes, err := e.namesInStore(ctx, c)
		names.Exclusive = append(names.Exclusive, volumes...)
		return names, err
	}
	err = e.quiescer.WhileLocked(ctx, find, func() (settled <-chan struct{}, err error) {
		result, settled, err = e.forwardUntilSettled(ctx, c)
		return settled, err
	})
	return result, err
}

// namesInStore returns the names of an lvstore and its volumes, or none if the lvstore does not
// exist.
func (e *Executor) namesInStore(ctx context.Context, c Command) (names []string, err error) {
	which := map[string]any{}
	for from, to := range map[string]string{"uuid": "uuid", "lvs_name": "lvs_name", "old_name": "lvs_name"} {
		if v, ok := c.Params[from]; ok {
			which[to] = v
		}
	}
	stores, err := ask[spdkrpc.LvolStore](ctx, c, "bdev_lvol_get_lvstores", which)
	if err != nil || len(stores) != 1 {
		return nil, err
	}
	names = []string{storeKey(stores[0].Name), storeKey(stores[0].UUID)}
	if list, ok := e.Schema.Method(listLvolsMethod); !ok || !list.Has(c.Conn.Release()) {
		return names, nil // v23.01 can list only bdevs
	}
	volumes, err := ask[spdkrpc.LvolInfo](ctx, c, listLvolsMethod, map[string]any{"lvs_uuid": stores[0].UUID})
	for _, v := range volumes {
		names = append(names, v.UUID, v.Alias)
	}
	return names, err
}

// ask makes one of the proxy's own calls, which lists objects. If no object has the requested name,
// the list is empty.
func ask[T any](ctx context.Context, c Command, method string, params map[string]any) (list []T, err error) {
	raw, err := c.Ask(ctx, method, params)
	if errors.Is(err, spdkrpc.NoSuchDevice) || errors.Is(err, spdkrpc.InvalidParams) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.Failed, Message: "the result does not match the schema", Err: err}
	}
	return list, nil
}
