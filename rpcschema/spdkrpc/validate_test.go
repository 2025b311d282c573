package spdkrpc

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// The client does not send parameters that the schema does not allow, unless the caller disables
// validation.
func TestClientValidatesBeforeItSends(t *testing.T) {
	for name, send := range map[string]func(*Client) error{
		"block size 0, which makes the target abort": func(c *Client) error {
			_, err := c.BdevNullCreate(t.Context(), BdevNullCreateParams{Name: "n", NumBlocks: 8, BlockSize: 0})
			return err
		},
		"2^64-1 MiB, which makes a volume of no blocks": func(c *Client) error {
			_, err := c.BdevLvolCreate(t.Context(), BdevLvolCreateParams{LvolName: "a", SizeInMiB: math.MaxUint64, LvsName: new("l")})
			return err
		},
		"a name that SPDK damages": func(c *Client) error {
			return c.BdevLvolRename(t.Context(), BdevLvolRenameParams{OldName: "l/a", NewName: string(make([]byte, 64))})
		},
		"a value of a later release": func(c *Client) error {
			mode := BdevResetStatModeError
			return c.BdevResetIOStat(t.Context(), BdevResetIOStatParams{Mode: &mode})
		},
	} {
		r := &recorder{release: "v24.01", answer: `true`}
		err := send(NewClient(r))
		require.ErrorIs(t, err, InvalidParams, name)
		var e *Error
		require.ErrorAs(t, err, &e, name)
		assert.Equal(t, jsonrpc.CodeInvalidParams, e.Code, "%s: an error of the target, as the driver reports it", name)
		for _, sent := range r.sent {
			assert.Equal(t, "spdk_get_version none", sent, name)
		}

		r = &recorder{release: "v24.01", answer: `true`}
		_ = send(NewClient(r, WithoutValidation()))
		assert.NotContains(t, r.sent[len(r.sent)-1], "spdk_get_version", "%s: sent as it is", name)
	}
}

// Validating the driver's calls adds few allocations to those for encoding the calls and adapting
// them to the release.
func TestValidationIsCheap(t *testing.T) {
	params := BdevLvolCreateParams{LvolName: "pvc-0d9a57b2-7f4e-4a6e-8d3c-5b1f0e9a7c66", SizeInMiB: 1024, LvsName: new("lvs0"), ThinProvision: new(true)}
	count := func(options ...ClientOption) float64 {
		c := NewClient(&recorder{release: "v26.05"}, options...)
		_, err := c.Release(t.Context())
		require.NoError(t, err)
		return testing.AllocsPerRun(100, func() { _, _ = c.fit(t.Context(), "bdev_lvol_create", params) })
	}
	with, without := count(), count(WithoutValidation())
	t.Logf("%.0f allocations, %.0f without validation", with, without)
	assert.LessOrEqual(t, with, without+20)
}

// The code -1 can also mean EPERM. It is reported as WrongState, which means that the call was
// certainly not executed, only if the schema supports that.
func TestSchemaInterpretsCodeMinusOne(t *testing.T) {
	for method, kind := range map[string]Kind{
		// the schema describes this meaning of -1
		"framework_start_init": WrongState, "accel_set_options": WrongState,
		"bdev_get_bdevs":           WrongState, // methods that only read
		"bdev_lvol_create_lvstore": Busy, "bdev_raid_create": Busy, "bdev_nvme_set_options": Busy,
		// the schema describes another meaning of -1
		"keyring_file_add_key": Failed, "vmd_rescan": Failed, "bdev_rbd_create": Failed,
		// the schema does not describe -1
		"bdev_lvol_create": Failed, "nvmf_subsystem_add_ns": Failed, "nosuch_method": Failed,
	} {
		assert.Equal(t, kind, answered(method, -1, "").Kind, method)
	}
}
