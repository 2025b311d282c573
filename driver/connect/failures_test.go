package connect

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// prepared describes an export on a fake kernel in a given state.
type prepared struct {
	*kernel
	Watcher
	export Export
}

// result returns the result of an operation without the device's path, which depends on the address
// that was used.
func (p prepared) result(d Device, err error) (any, error) {
	if strings.HasPrefix(d.Path, p.root+"/dev/") {
		d.Path = "/dev"
	}
	return d, err
}

var preparedExports = map[string]func(t *testing.T, attached bool) prepared{
	"NVMe with native multipath":    func(t *testing.T, attached bool) prepared { return prepareNVMe(t, true, attached) },
	"NVMe without native multipath": func(t *testing.T, attached bool) prepared { return prepareNVMe(t, false, attached) },
	"iSCSI": func(t *testing.T, attached bool) prepared {
		k, c := newISCSIKernel(t)
		k.onWrite = func(path, _ string) error {
			if strings.HasSuffix(path, "/rescan") {
				k.lun(1, 0, "sda", uuid1[:31], 2*gib)
			}
			return nil
		}
		if attached {
			k.session(1, iqn1, k.host.IQN)
			k.lun(1, 0, "sda", uuid1[:31], gib)
		}
		return prepared{k.kernel, c, k.export}
	},
}

func prepareNVMe(t *testing.T, multipath, attached bool) prepared {
	k, c := newNVMeKernel(t, multipath)
	if multipath {
		k.native()
	}
	e := twoListeners(t)
	k.restores(t, []string{e.Port, e.More[0].Port}, uuid1)
	remove := k.onWrite
	k.onWrite = func(path, text string) error {
		if strings.HasSuffix(path, "/rescan_controller") {
			k.namespace(0, 0, 1, "uuid."+uuid1, 2*gib)
		}
		return remove(path, text)
	}
	if attached {
		k.attach(0, e.Port, "live")
		k.namespace(0, 0, 1, "uuid."+uuid1, gib)
	}
	return prepared{k.kernel, c, e}
}

// If any access to the kernel fails, the operation fails with that error and without a result,
// unless it does not need the access. A retry returns the same result as without the failure.
func TestFailedAccessFailsTheOperation(t *testing.T) {
	for name, prepare := range preparedExports {
		for operation, c := range map[string]struct {
			attached bool
			do       func(ctx context.Context, p prepared) (any, error)
		}{
			"connect":          {false, func(ctx context.Context, p prepared) (any, error) { return p.result(p.Connect(ctx, p.export)) }},
			"connect again":    {true, func(ctx context.Context, p prepared) (any, error) { return p.result(p.Connect(ctx, p.export)) }},
			"find":             {true, func(ctx context.Context, p prepared) (any, error) { return p.result(p.Find(ctx, p.export)) }},
			"rescan":           {true, func(ctx context.Context, p prepared) (any, error) { return p.Rescan(ctx, p.export, 2*gib) }},
			"disconnect":       {true, func(ctx context.Context, p prepared) (any, error) { return 0, p.Disconnect(ctx, p.export) }},
			"disconnect again": {false, func(ctx context.Context, p prepared) (any, error) { return 0, p.Disconnect(ctx, p.export) }},
			"reconnect":        {true, func(ctx context.Context, p prepared) (any, error) { return 0, p.Reconnect(ctx, p.export) }},
			"paths": {true, func(ctx context.Context, p prepared) (any, error) {
				found, err := p.Paths(ctx, p.export)
				if err == nil {
					err = found.NoDevice
				}
				return found.Live(), err
			}},
		} {
			t.Run(name+"/"+operation, func(t *testing.T) {
				p := prepare(t, c.attached)
				want, err := c.do(t.Context(), p)
				require.NoError(t, err)
				require.Positive(t, p.accesses)
				failed := 0
				for n := 1; ; n++ {
					p := prepare(t, c.attached)
					p.failAt = n
					got, err := c.do(t.Context(), p)
					reached := p.accesses >= n
					p.failAt = 0
					switch {
					case !reached:
						require.NoError(t, err)
						assert.Positive(t, failed)
						return
					case err != nil:
						failed++
						require.ErrorIs(t, err, syscall.EIO, "access %d", n)
						require.ErrorContains(t, err, p.export.Target(), "access %d", n)
						if operation != "paths" && operation != "rescan" {
							assert.Zero(t, got, "access %d", n)
						}
					default:
						assert.Equal(t, want, got, "access %d", n)
					}
					again, err := c.do(t.Context(), p)
					require.NoError(t, err, "after access %d", n)
					assert.Equal(t, want, again, "after access %d", n)
				}
			})
		}
	}
}
