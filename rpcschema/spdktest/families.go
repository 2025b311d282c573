package spdktest

import (
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// What a method answers to parameters that it cannot decode is a habit of its
// family in SPDK's tree; seen the same in v24.01 and v26.05.

// decodeCode is the code for parameters that could not be decoded.
func decodeCode(method string) int {
	if code, odd := oddDecodeCodes[method]; odd {
		return code
	}
	if strings.HasPrefix(method, "bdev_") {
		return jsonrpc.CodeInternalError
	}
	return jsonrpc.CodeInvalidParams
}

var oddDecodeCodes = map[string]int{
	"bdev_crypto_create":       jsonrpc.CodeParseError,
	"bdev_crypto_delete":       jsonrpc.CodeInvalidParams,
	"bdev_examine":             jsonrpc.CodeInvalidParams,
	"bdev_set_options":         jsonrpc.CodeInvalidParams,
	"bdev_wait_for_examine":    jsonrpc.CodeInvalidParams,
	"iscsi_enable_histogram":   jsonrpc.CodeInternalError,
	"iscsi_get_histogram":      jsonrpc.CodeInternalError,
	"accel_crypto_key_create":  jsonrpc.CodeParseError,
	"accel_crypto_key_destroy": jsonrpc.CodeParseError,
	"accel_crypto_keys_get":    jsonrpc.CodeParseError,
}

// relaxedMethods let unknown members pass.
var relaxedMethods = []string{
	"keyring_file_add_key", "nvmf_create_transport", "nvmf_discovery_add_referral",
	"nvmf_subsystem_add_host", "nvmf_subsystem_add_listener", "nvmf_subsystem_add_ns",
}

// requiredSince are parameters of methods, and members of objects, that older
// releases could do without, in decoding.
var requiredSince = map[string]rpcschema.Release{
	"bdev_lvol_clone clone_name": rpcschema.MustRelease("v26.05"),
	"NVMfListenAddress trtype":   rpcschema.MustRelease("v24.09"),
}

// slow reports whether a call may wait or copy data: calls that come after it
// on the same connection are not held up.
func slow(method string, params map[string]any) bool {
	switch method {
	case "bdev_lvol_clone", "bdev_lvol_snapshot", "framework_wait_init":
		return true
	case "bdev_get_bdevs":
		return params["timeout"] != nil
	}
	return false
}
