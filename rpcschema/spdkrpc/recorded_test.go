package spdkrpc

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKindsMatchRecordedCodes compares the table of kinds with the codes that a real spdk_tgt
// v26.05 returned in each situation.
func TestKindsMatchRecordedCodes(t *testing.T) {
	for _, c := range []struct {
		method, situation string
		code              int
		kind              Kind
	}{
		{"bdev_get_bdevs", "unknown name", -19, NoSuchDevice},
		{"bdev_get_bdevs", "target in startup state", -1, WrongState},
		{"bdev_aio_create", "name taken", -17, Exists},
		{"bdev_aio_create", "file missing", -2, NoSuchDevice},
		{"bdev_aio_create", "block size no power of two", -22, InvalidParams},
		{"bdev_aio_delete", "unknown", -19, NoSuchDevice},
		{"bdev_aio_rescan", "file shrank", -16, Busy},
		{"bdev_aio_create", "name missing", -32603, Failed},
		{"bdev_malloc_create", "no memory", -12, NoSpace},
		{"bdev_passthru_create", "base claimed", -1, Busy},
		{"bdev_lvol_create_lvstore", "bdev claimed", -1, Busy},
		{"bdev_lvol_create_lvstore", "name taken", -17, Exists},
		{"bdev_lvol_create_lvstore", "unknown bdev", -19, NoSuchDevice},
		{"bdev_lvol_rename_lvstore", "unknown", -2, NoSuchDevice},
		{"bdev_lvol_create", "name taken", -17, Exists},
		{"bdev_lvol_create", "unknown lvstore", -19, NoSuchDevice},
		{"bdev_lvol_create", "lvstore full", -32602, InvalidParams},
		{"bdev_lvol_create", "uuid and lvs_name", -22, InvalidParams},
		{"bdev_lvol_clone", "name taken", -32602, InvalidParams},
		{"bdev_lvol_delete", "unknown", -19, NoSuchDevice},
		{"bdev_lvol_delete", "snapshot with two clones", -32603, Failed},
		{"bdev_set_qos_limit", "another change in progress", -32602, InvalidParams},
		{"nosuch_method", "unknown method", -32601, MethodNotFound},
		{"framework_start_init", "already started", -1, WrongState},
	} {
		t.Run(c.method+", "+c.situation, func(t *testing.T) {
			var e *Error
			require.True(t, errors.As(error(answered(c.method, c.code, "")), &e))
			assert.Equal(t, c.kind, e.Kind)
		})
	}
}
