package spdktest

import (
	"fmt"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func init() {
	query("spdk_get_version", func(e *engine) (spdkrpc.FrameworkVersion, error) {
		return spdkrpc.FrameworkVersion{
			Version: fmt.Sprintf("SPDK %s", e.release),
			Fields:  spdkrpc.FrameworkVersionFields{Major: uint32(e.release.Year), Minor: uint32(e.release.Month)},
		}, nil
	})
	handle("rpc_get_methods", (*engine).rpcGetMethods)
	query("framework_start_init", func(e *engine) (bool, error) {
		e.start()
		return true, nil
	})
	query("notify_get_types", func(e *engine) ([]string, error) {
		types := []string{"bdev_register", "bdev_unregister"}
		if !e.before("v24.09") {
			types = append([]string{"fsdev_register", "fsdev_unregister"}, types...)
		}
		if !e.before("v25.09") {
			types = append(types, "bdev_resize")
		}
		return types, nil
	})
	handlers["framework_wait_init"] = func(e *engine, _ map[string]any) (any, error) {
		select {
		case <-e.ready:
		case <-e.gone:
		}
		return e.do(func() (any, error) { return true, nil })
	}
}

func (e *engine) rpcGetMethods(p spdkrpc.RPCGetMethodsParams) ([]string, error) {
	state := ""
	if value(p.Current) {
		state = "startup"
		if e.started {
			state = "runtime"
		}
	}
	return e.target.methods.names(state, value(p.IncludeAliases)), nil
}
