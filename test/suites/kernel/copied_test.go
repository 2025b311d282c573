//go:build kernel

package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// In the machine, spdk-csi move copies thin and thick volumes, each with a snapshot below it, to
// another lvstore of a real target. A first copy is made while a node uses the volume; the second
// copy adds what has changed since. All bytes are compared, and then the copy is used.
func TestMovedCopyCanBeUsed(t *testing.T) {
	realTarget.Lock()
	t.Cleanup(realTarget.Unlock)
	socket := realtarget.Socket(t)
	const other = "kernel-test-other"
	addStore(t, socket, other)
	c := newCSITarget(t, socket, "nvme-tcp", "", other)
	proxy := c.startPlainProxy(t, socket)
	m := NewMachine(t)
	m.Target = func(ctx context.Context, call control.TargetCall) (map[string]string, error) {
		switch call.Do {
		case control.Make:
			call.Parameters = map[string]string{"lvstore": csiStore, "thin": strconv.FormatBool(!strings.HasSuffix(call.Volume, control.Thick))}
		case control.Withdraw:
			return map[string]string{control.VolumeID: c.volumes[call.Volume].GetVolumeId()}, c.detach(ctx, call.Volume)
		case control.Configuration:
			return c.guestConfig(proxy, other)
		case control.Publish: // a copy made by spdk-csi move
			if id, ok := call.Parameters[control.VolumeID]; ok {
				c.volumes[call.Volume] = &csi.Volume{VolumeId: id, VolumeContext: map[string]string{}}
			}
		case control.Forget: // spdk-csi move has deleted it
			delete(c.volumes, call.Volume)
			return nil, nil
		}
		return c.do(ctx, call)
	}
	runNode(t, m, control.Copied, control.SPDK)
}

// addStore creates a second lvstore on the target.
func addStore(t *testing.T, path, name string) {
	socket := spdkrpc.NewSocket(path)
	rpc := spdkrpc.NewClient(socket)
	file := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 1024*mib))
	_, err := rpc.BdevAIOCreate(t.Context(), spdkrpc.BdevAIOCreateParams{Name: name, Filename: file, BlockSize: new(uint32(4096))})
	require.NoError(t, err)
	_, err = rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: name, LvsName: name, ClusterSz: new(uint32(mib))})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, rpc.BdevLvolDeleteLvstore(ctx, spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: new(name)}))
		require.NoError(t, rpc.BdevAIODelete(ctx, spdkrpc.BdevAIODeleteParams{Name: name}))
		require.NoError(t, socket.Close())
	})
}

// startPlainProxy starts a proxy for the guest. The proxy does not use TLS, because certificates do
// not contain the guest's address for the host.
func (c *csiTarget) startPlainProxy(t *testing.T, path string) (port string) {
	dir, port := t.TempDir(), freePort(t)
	hash, err := bcrypt.GenerateFromPassword([]byte("not a secret"), bcrypt.MinCost)
	require.NoError(t, err)
	serveProxy(t, dir, fmt.Sprintf(plainProxyConfigFmt, port, path, filepath.Join(dir, "freeze"), hash))
	return port
}

const plainProxyConfigFmt = `listen: 127.0.0.1:%s
tls: {insecure_plaintext: true}
target: {socket: %q, accept_loading_what_hosts_write: true, accept_changes_without_counts: true, freeze: {dir: %q}}
users:
  - {name: csi, password_hash: %q, roles: [csi-controller]}
log: {level: error}
`

// guestConfig returns a driver configuration for reaching the target from the guest.
func (c *csiTarget) guestConfig(proxyPort, otherStore string) (map[string]string, error) {
	var config struct {
		Nodes []map[string]any `json:"nodes"`
	}
	if err := json.Unmarshal(c.config, &config); err != nil {
		return nil, err
	}
	n := config.Nodes[0]
	n["rpcURL"] = "http://" + control.Address + ":" + proxyPort + "/"
	n["targetAddr"], n["listenAddr"] = control.Address, "127.0.0.1"
	delete(n, "caFile")
	text, err := json.Marshal(config)
	return map[string]string{"config.json": string(text), "secret.json": c.secret, "lvstore": otherStore}, err
}
