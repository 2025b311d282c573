package execute

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	decoupleMethod = "bdev_lvol_decouple_parent"
	inflateMethod  = "bdev_lvol_inflate"
)

// mustFitParent reports whether the call would crash SPDK if the volume were larger than its
// parent.
func mustFitParent(c Command) bool {
	return c.Method.Name == decoupleMethod || c.Method.Name == inflateMethod && !c.Conn.Release().Has(rpcschema.InflatesBeyondParent)
}

// checkFitsParent returns an error if bdev_lvol_decouple_parent or bdev_lvol_inflate names a volume
// larger than its parent, because SPDK would read past the end of the parent's cluster list. SPDK
// itself checks all other cases.
func (e *Executor) checkFitsParent(ctx context.Context, c Command) error {
	name, _ := c.Params["name"].(string)
	v, err := e.bdev(ctx, c, name)
	if err != nil || v == nil || v.DriverSpecific.Lvol == nil || v.DriverSpecific.Lvol.BaseSnapshot == nil || len(v.Aliases) == 0 {
		return err
	}
	store, _, _ := strings.Cut(v.Aliases[0], "/")
	parent, err := e.bdev(ctx, c, store+"/"+*v.DriverSpecific.Lvol.BaseSnapshot)
	if err != nil || parent != nil && v.NumBlocks <= parent.NumBlocks {
		return err
	}
	return &spdkrpc.Error{Method: c.Method.Name, Kind: spdkrpc.InvalidParams, Code: jsonrpc.CodeInvalidParams,
		Message: "Invalid argument: the volume is larger than its parent, and SPDK would read beyond the end of the parent's list of clusters. Nothing was executed. Keep the parent, or copy the data to another volume"}
}

// setsParent reports whether a call changes a volume's parent.
func setsParent(c Command) bool {
	return c.Method.Name == "bdev_lvol_set_parent" || c.Method.Name == "bdev_lvol_set_parent_bdev"
}

// checkNothingOn refuses to set a new parent for a volume that has clones, or that another bdev
// claims, such as a clone in another lvstore. The new parent could be one of these bdevs, and SPDK
// does not detect such a loop. A volume without clones and claims cannot become part of a loop.
// checkNothingOn also refuses to set a new parent for a snapshot, because a snapshot's content must
// not change.
func (e *Executor) checkNothingOn(ctx context.Context, c Command, name string) error {
	v, err := e.bdev(ctx, c, name)
	if err != nil || v == nil || v.DriverSpecific.Lvol == nil {
		return err
	}
	if isReadOnly(v) {
		return &spdkrpc.Error{Method: c.Method.Name, Kind: spdkrpc.InvalidParams, Code: jsonrpc.CodeInvalidParams,
			Message: "Invalid argument: this is a snapshot or a read-only volume, and another parent would change its content. Nothing was executed. Make a clone (bdev_lvol_clone), and set the parent of the clone"}
	}
	if len(v.DriverSpecific.Lvol.Clones) == 0 && !v.Claimed {
		return nil
	}
	return &spdkrpc.Error{Method: c.Method.Name, Kind: spdkrpc.InvalidParams, Code: jsonrpc.CodeInvalidParams,
		Message: "Invalid argument: other volumes or bdevs use this volume. If its new parent were one of them, hosts could not read it, and SPDK could not load it after a restart. Nothing was executed. Set the parent of a volume without clones"}
}

// isReadOnly reports whether an lvol is a snapshot or a read-only volume. After a restart, SPDK
// reports a snapshot without clones as a volume that does not support writes.
func isReadOnly(b *spdkrpc.BdevInfo) bool {
	return value(b.DriverSpecific.Lvol.Snapshot) || !b.SupportedIOTypes.Write
}

// bdev queries the target for a bdev. If the bdev does not exist, it returns nil.
func (e *Executor) bdev(ctx context.Context, c Command, name string) (*spdkrpc.BdevInfo, error) {
	const method = "bdev_get_bdevs"
	raw, err := c.Ask(ctx, method, map[string]any{"name": name})
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []spdkrpc.BdevInfo
	if err := json.Unmarshal(raw, &list); err != nil || len(list) != 1 {
		return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.Failed, Message: "the result does not match the schema", Err: err}
	}
	return &list[0], nil
}
