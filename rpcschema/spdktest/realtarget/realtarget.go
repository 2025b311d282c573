// Package realtarget connects tests to a real spdk_tgt at the socket that $SPDK_SOCK names.
//
// The package refuses a target that is not empty, because a test must not delete objects that it
// did not create. It empties the target after each test, even after a failed one, so that one
// failure does not cause another.
//
// The package must not depend on the proxy, the driver, or specific tests.
package realtarget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Variable is the environment variable that names the target's socket.
const Variable = "SPDK_SOCK"

// Given reports whether the environment variable is set.
func Given() bool { return os.Getenv(Variable) != "" }

// Socket returns the socket of the real target. It skips the test if the environment names no
// target, and fails the test if the target contains any object. It empties the target when the test
// ends.
func Socket(t testing.TB) string {
	t.Helper()
	path := os.Getenv(Variable)
	if path == "" {
		t.Skipf("set %s to the socket of an empty spdk_tgt to run this on a real target", Variable)
	}
	caller := spdkrpc.NewSocket(path)
	defer func() { _ = caller.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found, err := list(ctx, caller)
	switch {
	case errors.Is(err, spdkrpc.WrongState):
		return path // a target in the startup state is empty
	case err != nil:
		t.Fatalf("look at the target behind %s=%s: %v", Variable, path, err)
	case len(found) > 0:
		t.Fatalf("the target behind %s=%s holds %s: these tests make and delete objects at will, so they want an spdk_tgt that holds nothing: start a fresh one", Variable, path, names(found))
	}
	t.Cleanup(func() { empty(t, path) })
	return path
}

// empty removes all objects from the target.
func empty(t testing.TB, path string) {
	caller := spdkrpc.NewSocket(path)
	defer func() { _ = caller.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	removed, left, err := remove(ctx, caller)
	if len(removed) > 0 {
		t.Logf("the test left %s on the target: removed", names(removed))
	}
	if err != nil || len(left) > 0 {
		t.Errorf("the target behind %s still has %s (%v): restart it before the next test", path, names(left), err)
	}
}

// An object identifies one of the target's objects.
type object struct{ kind, name string }

func (o object) String() string { return o.kind + " " + o.name }

func names(list []object) string {
	var names []string
	for _, o := range list {
		names = append(names, o.String())
	}
	return strings.Join(names, ", ")
}

// A kind describes how objects of one kind are listed, which member contains an object's name, and
// how an object is deleted. The kinds are in the order of deletion.
type kind struct {
	name, list, key string
	remove, param   string
	keep            func(map[string]any) bool
	removeBy        func(map[string]any) string
}

var kinds = []kind{
	{name: "subsystem", list: "nvmf_get_subsystems", key: "nqn", remove: "nvmf_delete_subsystem", param: "nqn",
		// SPDK itself creates the discovery subsystem.
		keep: func(o map[string]any) bool { return o["subtype"] != "NVMe" }},
	{name: "iSCSI target", list: "iscsi_get_target_nodes", key: "name", remove: "iscsi_delete_target_node", param: "name"},
	{name: "portal group", list: "iscsi_get_portal_groups", key: "tag", remove: "iscsi_delete_portal_group", param: "tag"},
	{name: "initiator group", list: "iscsi_get_initiator_groups", key: "tag", remove: "iscsi_delete_initiator_group", param: "tag"},
	{name: "auth group", list: "iscsi_get_auth_groups", key: "tag", remove: "iscsi_delete_auth_group", param: "tag"},
	{name: "lvstore", list: "bdev_lvol_get_lvstores", key: "name", remove: "bdev_lvol_delete_lvstore", param: "lvs_name"},
	{name: "bdev", list: "bdev_get_bdevs", key: "name", removeBy: deletion, param: "name"},
	{name: "key", list: "keyring_get_keys", key: "name", remove: "keyring_file_remove_key", param: "name"},
}

// deletions maps product names of bdevs to the methods that delete them.
var deletions = map[string]string{
	"AIO disk": "bdev_aio_delete", "URING bdev": "bdev_uring_delete", "Malloc disk": "bdev_malloc_delete", "Null disk": "bdev_null_delete",
	"Logical Volume": "bdev_lvol_delete", "passthru": "bdev_passthru_delete", "delay": "bdev_delay_delete", "Error Disk": "bdev_error_delete",
	"crypto": "bdev_crypto_delete", "Raid Volume": "bdev_raid_delete", "zone_block": "bdev_zone_block_delete", "FTL disk": "bdev_ftl_delete",
}

func deletion(bdev map[string]any) string {
	product, _ := bdev["product_name"].(string)
	return deletions[product]
}

// found returns the objects of one kind as the target lists them.
func (k kind) found(ctx context.Context, caller spdkrpc.Caller) ([]map[string]any, error) {
	var raw json.RawMessage
	err := caller.Call(ctx, k.list, nil, &raw)
	if errors.Is(err, spdkrpc.MethodNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list every %s: %w", k.name, err)
	}
	var all []map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("list every %s: %w", k.name, err)
	}
	return slices.DeleteFunc(all, func(o map[string]any) bool { return k.keep != nil && k.keep(o) }), nil
}

func list(ctx context.Context, caller spdkrpc.Caller) (all []object, err error) {
	for _, k := range kinds {
		found, err := k.found(ctx, caller)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			all = append(all, object{k.name, fmt.Sprint(o[k.key])})
		}
	}
	return all, nil
}

// deleteOne deletes an object. It waits for at most a minute, because SPDK never responds to some
// deletions.
func deleteOne(ctx context.Context, caller spdkrpc.Caller, method string, params map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return caller.Call(ctx, method, params, nil)
}

// remove deletes all objects, newest first, because newer bdevs may be on top of older ones. SPDK
// also remembers a passthru bdev whose base bdev was deleted.
func remove(ctx context.Context, caller spdkrpc.Caller) (removed, left []object, err error) {
	at := map[object]bool{}
	for {
		var failed []error
		progress := false
		for _, k := range kinds {
			found, err := k.found(ctx, caller)
			if err != nil {
				return removed, left, err
			}
			slices.Reverse(found)
			for _, o := range found {
				method := k.remove
				if k.removeBy != nil {
					method = k.removeBy(o)
				}
				this := object{k.name, fmt.Sprint(o[k.key])}
				if method == "" {
					continue
				}
				if err := deleteOne(ctx, caller, method, map[string]any{k.param: o[k.key]}); err != nil {
					failed = append(failed, fmt.Errorf("%s: %w", this, err))
					continue
				}
				if !at[this] { // an object that reappears must not cause an endless loop
					progress, at[this] = true, true
					removed = append(removed, this)
				}
			}
		}
		if left, err = list(ctx, caller); err != nil || len(left) == 0 {
			return removed, left, err
		}
		if !progress || ctx.Err() != nil {
			return removed, left, errors.Join(failed...)
		}
	}
}
