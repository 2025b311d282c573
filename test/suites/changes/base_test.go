package changes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A base is the bdev below an lvstore.
type base struct {
	bdev  string
	image string // the file with the content
	grow  func() // enlarges the bdev; nil if it cannot grow
}

const disk = "disk0"

// bases lists functions that create a target with each kind of base.
var bases = map[string]func(t *testing.T, bytes int64) (*target, base){
	"aio": func(t *testing.T, bytes int64) (*target, base) {
		image := newImage(t, bytes)
		g := newTarget(t, func(g *target) { g.useFile(image) })
		return g, base{disk, image, func() {
			info, err := os.Stat(image)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(image, info.Size()+64*mib))
			g.must("bdev_aio_rescan", p{"name": disk}, nil)
		}}
	},
	"uring": func(t *testing.T, bytes int64) (*target, base) {
		image := newImage(t, bytes)
		g := newTarget(t, func(g *target) {
			err := g.call("bdev_uring_create", p{"name": disk, "filename": image, "block_size": 4096}, nil)
			if spdkrpc.KindOf(err) == spdkrpc.MethodNotFound {
				t.Skip("this spdk_tgt was built without io_uring")
			}
			require.NoError(t, err)
			g.must("bdev_wait_for_examine", nil, nil)
		})
		return g, base{bdev: disk, image: image}
	},
	"nvme": func(t *testing.T, bytes int64) (*target, base) {
		image := newImage(t, bytes)
		address := newFarTarget(t, image)
		g := newTarget(t, func(g *target) { g.useNamespace(address) })
		return g, base{bdev: disk + "n1", image: image}
	},
}

// useFile creates the base on a file, with AIO.
func (g *target) useFile(image string) {
	g.must("bdev_aio_create", p{"name": disk, "filename": image, "block_size": 4096}, nil)
	g.must("bdev_wait_for_examine", nil, nil)
}

// useNamespace creates the base on a namespace of a far target.
func (g *target) useNamespace(address string) {
	host, port, _ := strings.Cut(address, ":")
	g.must("bdev_nvme_attach_controller", p{"name": disk, "trtype": "TCP", "adrfam": "IPv4", "traddr": host, "trsvcid": port, "subnqn": farNQN}, nil)
	g.must("bdev_wait_for_examine", nil, nil)
}

const farNQN = "nqn.2026-11.io.spdkgate.test:1"

// newFarTarget starts a target that exports a file, and returns its address.
func newFarTarget(t *testing.T, image string) (address string) {
	program := strings.Fields(os.Getenv("SPDK_TGT_FAR"))
	if len(program) == 0 {
		program = []string{os.Getenv("SPDK_TGT")}
	}
	newTargetOf(t, program, func(far *target) {
		far.must("bdev_set_options", p{"bdev_auto_examine": false}, nil) // the file may contain an lvstore, which would claim it
		far.must("framework_start_init", nil, nil)
		far.must("bdev_aio_create", p{"name": "far", "filename": image, "block_size": 4096}, nil)
		_, address = far.share("far")
	}, "--wait-for-rpc")
	return address
}

func newImage(t *testing.T, bytes int64) string {
	if os.Getenv("SPDK_TGT") == "" {
		t.Skip("set SPDK_TGT=/path/to/spdk_tgt to run this test")
	}
	image := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, bytes))
	return image
}
