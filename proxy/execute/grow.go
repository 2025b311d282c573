package execute

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/lvstore/blobstore"
	"github.com/spdkgate/spdkgate/lvstore/device"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const growStoreMethod = "bdev_lvol_grow_lvstore"

// checkGrows returns an error if growing the lvstore would crash SPDK (rpcschema.RecordsPageSize).
// If the lvstore's device cannot be read, checkGrows logs a warning and allows the call.
func (e *Executor) checkGrows(ctx context.Context, c Command) error {
	if !c.Conn.Release().Has(rpcschema.RecordsPageSize) {
		return nil
	}
	s, err := superBlock(ctx, spdkrpc.NewClient(ownCaller{c}), c.Params)
	switch {
	case errors.Is(err, spdkrpc.NoSuchDevice), ctx.Err() != nil:
		return nil // SPDK reports this
	case err != nil:
		e.Log.Warn("the super block of an lvstore that is about to grow was not checked", "params", c.Params, "error", err)
		return nil
	case s.RecordsPageSize:
		return nil
	}
	return &spdkrpc.Error{Method: c.Method.Name, Kind: spdkrpc.InvalidParams, Code: jsonrpc.CodeInvalidParams,
		Message: fmt.Sprintf("Invalid argument: SPDK before %s created this lvstore, and SPDK %s would crash. Nothing was executed. Grow the lvstore with a release before %s, or create another lvstore", rpcschema.RecordsPageSize.Since(), c.Conn.Release(), rpcschema.RecordsPageSize.Since())}
}

// superBlock reads the super block of the lvstore that a call's parameters name.
func superBlock(ctx context.Context, rpc *spdkrpc.Client, params map[string]any) (blobstore.Super, error) {
	var p spdkrpc.BdevLvolGetLvstoresParams
	if name, ok := params["lvs_name"].(string); ok {
		p.LvsName = &name
	}
	if uuid, ok := params["uuid"].(string); ok {
		p.UUID = &uuid
	}
	stores, err := rpc.BdevLvolGetLvstores(ctx, p)
	if err != nil {
		return blobstore.Super{}, err
	}
	if len(stores) != 1 {
		return blobstore.Super{}, fmt.Errorf("the target returned %d lvstores instead of one", len(stores))
	}
	bdevs, err := rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: &stores[0].BaseBdev})
	if err != nil {
		return blobstore.Super{}, err
	}
	if len(bdevs) != 1 {
		return blobstore.Super{}, fmt.Errorf("the target returned no description of bdev %s", stores[0].BaseBdev)
	}
	d, err := device.Open(ctx, rpc, bdevs[0])
	if err != nil {
		return blobstore.Super{}, err
	}
	defer func() { _ = d.Close() }()
	return blobstore.ReadSuper(d)
}
