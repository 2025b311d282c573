package proxy

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

// The proxy deletes no volume while another call works on the volume, its parent or its clone. SPDK
// would remove the volume from its lists and then refuse the deletion: the volume's space stays
// taken, and the volume is back after a restart.

const (
	renameMethod      = "bdev_lvol_rename"
	renameStoreMethod = "bdev_lvol_rename_lvstore"
	deleteStoreMethod = "bdev_lvol_delete_lvstore"
	shallowCopyMethod = "bdev_lvol_start_shallow_copy"
	listLvolsMethod   = "bdev_lvol_get_lvols"
)

// forwardUntilSettled is forward for a caller that holds locks until settled is closed: SPDK has
// answered, which can be after the call's deadline.
func (s *Server) forwardUntilSettled(ctx context.Context, c command) (result json.RawMessage, settled <-chan struct{}, err error) {
	done := make(chan struct{})
	c.observer.Settled = sync.OnceFunc(func() { close(done) })
	result, err = s.forward(ctx, c)
	return result, done, err
}

// forwardShared makes a call while no other call has locked the objects that it names.
func (s *Server) forwardShared(ctx context.Context, c command) (json.RawMessage, error) {
	names := s.namedBy(c)
	if len(names) == 0 {
		return s.forward(ctx, c)
	}
	release, err := s.quiescer.Share(ctx, names)
	if err != nil {
		return nil, err
	}
	result, settled, err := s.forwardUntilSettled(ctx, c)
	if c.method.Name == shallowCopyMethod && (err == nil || errors.Is(err, spdkrpc.OutcomeUnknown)) {
		go func() {
			<-settled
			s.awaitShallowCopy(c)
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

// namedBy returns the names of the objects that a call of SPDK uses or changes: NQNs, bdevs and
// lvstores.
func (s *Server) namedBy(c command) (names []string) {
	if !c.method.Mutates || c.method.ServedBy == rpcschema.ServedByProxy {
		return nil
	}
	named, _ := s.schema.Names(c.method.Name, c.params, maxNamedObjects)
	for _, n := range named {
		switch n.Kind {
		case "nqn", "bdev":
			names = append(names, n.Value)
		case "lvstore", "lvstore-uuid":
			names = append(names, storeKey(n.Value))
		}
	}
	return names
}

// maxNamedObjects bounds how many objects of one call are considered. No method of SPDK that
// changes an export names more than two.
const maxNamedObjects = 64

// storeKey is what is locked for an lvstore, by name or UUID.
func storeKey(store string) string { return "lvstore " + strings.ToLower(store) }

func without(names []string, name string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return n == name })
}

// shallowCopyPoll is the interval at which the destination of a shallow copy is looked at.
const shallowCopyPoll = 250 * time.Millisecond

// awaitShallowCopy waits until SPDK has ended a shallow copy, which goes on after its call. SPDK
// claims the destination meanwhile. The status of the copy is not read, because SPDK forgets a
// status once it was read.
func (s *Server) awaitShallowCopy(c command) {
	destination, _ := c.params["dst_bdev_name"].(string)
	for range time.Tick(shallowCopyPoll) {
		select {
		case <-s.ended:
			return
		default:
		}
		conn, err := s.target.Connect(context.Background(), "")
		if err != nil {
			continue // a target that was restarted does not copy
		}
		c.conn, c.user = conn, ""
		if b, err := s.bdev(context.Background(), c, destination); err == nil && (b == nil || !b.Claimed) {
			return
		}
	}
}

// renameLvol answers bdev_lvol_rename. Other calls may use the volume by its names, so no such call
// may run. SPDK refuses to rename a snapshot after it has changed the alias of its bdev, which
// then has another name than its clones say, so the proxy refuses that itself.
func (s *Server) renameLvol(ctx context.Context, c command) (result json.RawMessage, err error) {
	name, _ := c.params["old_name"].(string)
	next, _ := c.params["new_name"].(string)
	find := func(ctx context.Context) (names quiesce.Names, err error) {
		names.Exclusive = []string{name}
		b, err := s.bdev(ctx, c, name)
		if err != nil || b == nil || b.DriverSpecific.Lvol == nil {
			return names, err
		}
		if snapshot := b.DriverSpecific.Lvol.Snapshot; snapshot != nil && *snapshot {
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
	err = s.quiescer.WhileLocked(ctx, find, func() (settled <-chan struct{}, err error) {
		result, settled, err = s.forwardUntilSettled(ctx, c)
		return settled, err
	})
	return result, err
}

// changeStore answers bdev_lvol_delete_lvstore, which deletes all volumes, and
// bdev_lvol_rename_lvstore, which changes the aliases of all.
func (s *Server) changeStore(ctx context.Context, c command) (result json.RawMessage, err error) {
	find := func(ctx context.Context) (quiesce.Names, error) {
		names := quiesce.Names{Exclusive: s.namedBy(c)}
		if next, ok := c.params["new_name"].(string); ok {
			names.Exclusive = append(names.Exclusive, storeKey(next))
		}
		volumes, err := s.namesInStore(ctx, c)
		names.Exclusive = append(names.Exclusive, volumes...)
		return names, err
	}
	err = s.quiescer.WhileLocked(ctx, find, func() (settled <-chan struct{}, err error) {
		result, settled, err = s.forwardUntilSettled(ctx, c)
		return settled, err
	})
	return result, err
}

// namesInStore returns the names of an lvstore and of its volumes; none if it does not exist.
func (s *Server) namesInStore(ctx context.Context, c command) (names []string, err error) {
	which := map[string]any{}
	for from, to := range map[string]string{"uuid": "uuid", "lvs_name": "lvs_name", "old_name": "lvs_name"} {
		if v, ok := c.params[from]; ok {
			which[to] = v
		}
	}
	stores, err := ask[spdkrpc.LvolStore](ctx, s, c, "bdev_lvol_get_lvstores", which)
	if err != nil || len(stores) != 1 {
		return nil, err
	}
	names = []string{storeKey(stores[0].Name), storeKey(stores[0].UUID)}
	if list, ok := s.schema.Method(listLvolsMethod); !ok || !list.Has(c.conn.Release()) {
		return names, nil // v23.01 lists bdevs only
	}
	volumes, err := ask[spdkrpc.LvolInfo](ctx, s, c, listLvolsMethod, map[string]any{"lvs_uuid": stores[0].UUID})
	for _, v := range volumes {
		names = append(names, v.UUID, v.Alias)
	}
	return names, err
}

// ask makes a call of the proxy that lists objects. If there is no object of the asked name, the
// list is empty.
func ask[T any](ctx context.Context, s *Server, c command, method string, params map[string]any) (list []T, err error) {
	raw, err := c.conn.Call(ctx, c.user, method, params, c.settings.timeoutOf(method))
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
