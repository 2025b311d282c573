package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// These are the names of the tenant's objects on the target.
const (
	base     = "spdkgate-bench-base"
	lvstore  = "spdkgate-bench"
	lvolName = "own"
	nqn      = "nqn.2016-06.io.spdk:spdkgate-bench"
)

// tenantObjects are an lvstore, a volume in it, and a subsystem that exports the volume, all owned
// by the tenant.
type tenantObjects struct {
	socket *spdkrpc.Socket
	volume string // UUID
	remove string // method that deletes the base bdev
}

type params = map[string]any

// createTenantObjects creates the objects, after deleting any that an interrupted run has left
// behind.
func createTenantObjects(ctx context.Context, path string) (w *tenantObjects, err error) {
	w = &tenantObjects{socket: spdkrpc.NewSocket(path), remove: "bdev_malloc_delete"}
	method, arguments := "bdev_malloc_create", params{"name": base, "num_blocks": 8192, "block_size": 4096}
	if file := os.Getenv("SPDK_AIO_FILE"); file != "" {
		w.remove = "bdev_aio_delete"
		method, arguments = "bdev_aio_create", params{"name": base, "filename": file, "block_size": 4096}
	}
	w.clear(ctx)
	for _, c := range []struct {
		method string
		params params
		result any
	}{
		{method, arguments, nil},
		{"bdev_lvol_create_lvstore", params{"bdev_name": base, "lvs_name": lvstore, "cluster_sz": 65536}, nil},
		{"bdev_lvol_create", params{"lvol_name": lvolName, "size_in_mib": 1, "lvs_name": lvstore, "thin_provision": true}, &w.volume},
		{"nvmf_create_subsystem", params{"nqn": nqn, "allow_any_host": false, "serial_number": "BENCH"}, nil},
		{"nvmf_subsystem_add_ns", params{"nqn": nqn, "namespace": params{"bdev_name": lvstore + "/" + lvolName}}, nil},
	} {
		if err := w.socket.Call(ctx, c.method, c.params, c.result); err != nil {
			w.clear(ctx)
			return nil, errors.Join(fmt.Errorf("create the bench's objects: %w", err), w.socket.Close())
		}
	}
	return w, nil
}

// clear deletes the objects that exist.
func (w *tenantObjects) clear(ctx context.Context) {
	_ = w.socket.Call(ctx, "nvmf_delete_subsystem", params{"nqn": nqn}, nil)
	_ = w.socket.Call(ctx, "bdev_lvol_delete_lvstore", params{"lvs_name": lvstore}, nil)
	_ = w.socket.Call(ctx, w.remove, params{"name": base}, nil)
}

func (w *tenantObjects) close(ctx context.Context) error {
	w.clear(context.WithoutCancel(ctx))
	return w.socket.Close()
}

// A work is a named operation that each worker repeats.
type work struct {
	name string
	do   func(ctx context.Context, caller spdkrpc.Caller, worker int) error
}

// version makes a call that costs the target very little, so that the figures show the cost of the
// transport.
var version = work{"spdk_get_version", func(ctx context.Context, c spdkrpc.Caller, _ int) error {
	return c.Call(ctx, "spdk_get_version", nil, nil)
}}

// mixture makes the calls of a tenant's CSI controller, which request three lists that the proxy
// filters, and a volume that counts against the quota.
func (w *tenantObjects) mixture() work {
	return work{"mixture", func(ctx context.Context, c spdkrpc.Caller, worker int) error {
		var list json.RawMessage
		for _, read := range []struct {
			method string
			params params
		}{
			{"bdev_get_bdevs", params{"name": w.volume}},
			{"bdev_lvol_get_lvols", params{"lvs_name": lvstore}},
			{"nvmf_get_subsystems", params{"nqn": nqn}},
		} {
			if err := c.Call(ctx, read.method, read.params, &list); err != nil {
				return err
			}
		}
		var made string
		create := params{"lvol_name": fmt.Sprint("w", worker), "size_in_mib": 1, "lvs_name": lvstore, "thin_provision": true}
		if err := c.Call(ctx, "bdev_lvol_create", create, &made); err != nil {
			return err
		}
		return c.Call(ctx, "bdev_lvol_delete", params{"name": made}, nil)
	}}
}
