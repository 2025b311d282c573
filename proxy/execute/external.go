package execute

import (
	"context"

	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// externalParam lists the methods that make a volume a clone of a bdev outside its lvstore. It maps
// each method to the parameter that names the bdev.
var externalParam = map[string]string{"bdev_lvol_clone_bdev": "bdev", "bdev_lvol_set_parent_bdev": "parent_name"}

// checkExternal returns an error if the call would make a volume an external clone of a logical
// volume, unless the target examines volumes. After a restart, SPDK makes the clone available only
// when it examines that logical volume.
func (e *Executor) checkExternal(ctx context.Context, c Command) error {
	name, _ := c.Params[externalParam[c.Method.Name]].(string)
	if name == "" {
		return nil
	}
	examination, err := c.Conn.Examination(ctx)
	if err != nil || examination == target.ExaminesAll && !e.Config.Target.Save.DisableAutoExamine {
		return err
	}
	b, err := e.bdev(ctx, c, name)
	if err != nil || b == nil || b.DriverSpecific.Lvol == nil {
		return err
	}
	return &spdkrpc.Error{Method: c.Method.Name, Kind: spdkrpc.InvalidParams, Code: jsonrpc.CodeInvalidParams,
		Message: "Invalid argument: the parent is a logical volume. With bdev_auto_examine off, SPDK would not find it after a restart, and the clone would be missing. Nothing was executed. For volumes of one lvstore use bdev_lvol_snapshot, bdev_lvol_clone and bdev_lvol_set_parent; copy the data to another lvstore"}
}
