package sanity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver"
	csiconfig "github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/node"
	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// An environment is a target, its proxy, and the driver.
type environment struct {
	socket      string // of the driver
	secretsFile string
	rpc         *spdkrpc.Client // connected to the target without the proxy
	clear       string          // clearMethod of all volumes, or empty for the driver's default
	checkMounts func() error    // checks that the node has mounted what the variant specifies
	closers     []func() error
}

func (w *environment) close() error {
	var errs []error
	for i := len(w.closers) - 1; i >= 0; i-- {
		errs = append(errs, w.closers[i]())
	}
	return errors.Join(errs...)
}

func newEnvironment(ctx context.Context, v variant, dir string, services *errgroup.Group) (_ *environment, err error) {
	w := &environment{socket: filepath.Join(dir, "csi.sock"), secretsFile: filepath.Join(dir, "secrets.yaml")}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	socket, err := w.startTarget(ctx, v, dir)
	if err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	if err := startProxy(ctx, v, dir, address, socket, services); err != nil {
		return nil, err
	}
	return w, w.startDriver(ctx, v, dir, "https://"+address+"/", services)
}

// startTarget starts a target or connects to one, creates two lvstores there, and returns the
// target's socket.
func (w *environment) startTarget(ctx context.Context, v variant, dir string) (string, error) {
	socket := os.Getenv("SPDK_SOCK")
	if !v.Real {
		target, err := spdktest.Start(spdktest.Options{DataDir: filepath.Join(dir, "data"), ExamineListed: true})
		if err != nil {
			return "", err
		}
		w.closers = append(w.closers, target.Close)
		socket = target.Socket()
	}
	c := spdkrpc.NewSocket(socket)
	w.closers = append(w.closers, c.Close)
	w.rpc = spdkrpc.NewClient(c)
	release, err := w.rpc.Release(ctx)
	if err != nil {
		return "", err
	}
	if release.Before(rpcschema.MustRelease("v24.05")) {
		// otherwise, the driver would not create clones on these releases
		w.clear = "unmap-may-expose-deleted-data"
	}
	for _, store := range []string{"lvs0", "lvs1"} {
		disk := filepath.Join(dir, store+".img")
		if err := errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, 4<<30)); err != nil {
			return "", err
		}
		if _, err := w.rpc.BdevAIOCreate(ctx, spdkrpc.BdevAIOCreateParams{Name: "disk-" + store, Filename: disk, BlockSize: new(uint32(4096))}); err != nil {
			return "", err
		}
		w.closers = append(w.closers, func() error {
			return w.rpc.BdevAIODelete(context.Background(), spdkrpc.BdevAIODeleteParams{Name: "disk-" + store})
		})
		if _, err := w.rpc.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk-" + store, LvsName: store}); err != nil {
			return "", err
		}
		w.closers = append(w.closers, func() error {
			return w.rpc.BdevLvolDeleteLvstore(context.Background(), spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: &store})
		})
	}
	if v.Tenant {
		return socket, w.prepareForTenant(ctx, dir)
	}
	return socket, nil
}

// prepareForTenant makes the calls that only an administrator can make. It also creates and exports
// another owner's volume. The tenant can neither see nor change that volume, and after the suite,
// it must be unchanged.
func (w *environment) prepareForTenant(ctx context.Context, dir string) error {
	others := filepath.Join(dir, "others.img")
	if err := errors.Join(os.WriteFile(others, nil, 0o600), os.Truncate(others, 200*mib)); err != nil {
		return err
	}
	if _, err := w.rpc.BdevAIOCreate(ctx, spdkrpc.BdevAIOCreateParams{Name: "disk-others", Filename: others, BlockSize: new(uint32(4096))}); err != nil {
		return err
	}
	w.closers = append(w.closers, func() error {
		return w.rpc.BdevAIODelete(context.Background(), spdkrpc.BdevAIODeleteParams{Name: "disk-others"})
	})
	if _, err := w.rpc.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk-others", LvsName: "lvs-others"}); err != nil {
		return err
	}
	w.closers = append(w.closers, func() error {
		return w.rpc.BdevLvolDeleteLvstore(context.Background(), spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: new("lvs-others")})
	})
	id, err := w.rpc.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{LvolName: "pvc-1", LvsName: new("lvs-others"), SizeInMiB: 4})
	if err != nil {
		return err
	}
	if err := w.rpc.NVMfCreateTransport(ctx, spdkrpc.NVMfCreateTransportParams{Trtype: "TCP"}); err != nil {
		return err
	}
	nqn := export.NQN(id)
	if err := w.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: nqn}); err != nil {
		return err
	}
	w.closers = append(w.closers, func() error {
		return w.rpc.NVMfDeleteSubsystem(context.Background(), spdkrpc.NVMfDeleteSubsystemParams{NQN: nqn})
	})
	_, err = w.rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{NQN: nqn, Namespace: spdkrpc.NVMfNamespaceParams{BdevName: id}})
	return err
}

// proxyConfig gives the driver's user only the role that the driver needs.
const proxyConfig = `listen: %s
tls: {self_signed_dir: %q}
target: {socket: %q, accept_loading_what_hosts_write: true}
users:
  - {name: csi, password_hash: %q, roles: [csi-controller]%s}
log: {level: error}
`

// tenantConfig is added to the configuration for a driver whose user belongs to a tenant. The
// tenant owns the driver's lvstores, and its exports are limited.
const tenantConfig = `tenants:
  sanity:
    lvstores: [lvs0, lvs1]
    volume_nqn_prefix: "nqn.2020-04.io.spdk.csi:uuid:"
    addresses: ["127.0.0.1:4420"]
    hosts: ["nqn.2014-08.org.nvmexpress:uuid:*"]
    quota: {gib: 20, volumes: 100, subsystems: 100}
`

const password = "not a secret"

func startProxy(ctx context.Context, v variant, dir, address, socket string, services *errgroup.Group) error {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "spdk-proxy.yaml")
	tenant, tenants := "", ""
	if v.Tenant {
		tenant, tenants = ", tenant: sanity", tenantConfig
	}
	text := fmt.Sprintf(proxyConfig, address, filepath.Join(dir, "tls"), socket, hash, tenant) + tenants
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	server, err := proxy.NewServer(c, proxy.Options{Log: logger("proxy")})
	if err != nil {
		return err
	}
	l, err := server.Listen()
	if err != nil {
		return err
	}
	services.Go(func() error { return server.Serve(ctx, l) })
	return nil
}

func (w *environment) startDriver(ctx context.Context, v variant, dir, url string, services *errgroup.Group) error {
	target := map[string]any{
		"name": targetName, "rpcURL": url, "caFile": filepath.Join(dir, "tls", "tls.crt"),
		"targetType": v.TargetType, "targetAddr": "127.0.0.1", "lvstores": []string{"lvs0", "lvs1"},
	}
	if v.TargetType == "loop" {
		target["loopDir"] = filepath.Join(dir, "data")
	}
	text, err := json.Marshal(map[string]any{"nodes": []any{target}, "placement": map[string]any{"targetTimeout": "1m"}}) // for busy machines
	if err != nil {
		return err
	}
	cfg, err := csiconfig.Parse(text)
	if err != nil {
		return err
	}
	secret, err := json.Marshal(map[string]any{"rpcTokens": []any{map[string]any{"name": targetName, "username": "csi", "password": password}}})
	if err != nil {
		return err
	}
	credentials := filepath.Join(dir, "secret.json")
	if err := errors.Join(os.WriteFile(credentials, secret, 0o600), writeSecrets(w.secretsFile, string(secret))); err != nil {
		return err
	}
	log := logger("driver")
	service, err := controller.New(cfg, credentials, log)
	if err != nil {
		return err
	}
	w.closers = append(w.closers, func() error { service.Close(); return nil })
	nodeService, err := w.newNode(v, log)
	if err != nil {
		return err
	}
	l, err := driver.Listen("unix://" + w.socket)
	if err != nil {
		return err
	}
	server := driver.Server{Identity: &driver.Identity{Name: driver.DefaultName, Version: "sanity"}, Controller: service, Groups: service, Metadata: service, Node: nodeService, Log: log}
	services.Go(func() error { return server.Serve(ctx, l) })
	return nil
}

// newNode returns the real node service. Its connector and mounter are simulated unless the target
// type is loop, because the test machine's kernel may be unable to attach other exports.
func (w *environment) newNode(v variant, log *slog.Logger) (*node.Node, error) {
	if v.TargetType != "loop" {
		s := newSimulatedNode()
		w.checkMounts = func() error { return nil }
		return node.New(nodeName, 0, filepath.Dir(w.socket), s, s, log)
	}
	connector, err := connect.New(connect.HostOf(nodeName), connect.Options{AllowLoop: true, Log: log})
	if err != nil {
		return nil, err
	}
	m := &countingMounter{Mounter: mount.New(mount.Options{Log: log})}
	w.checkMounts = func() error { return m.check(v) }
	return node.New(nodeName, 0, filepath.Dir(w.socket), connector, m, log)
}

// A countingMounter counts mounts by file system type.
type countingMounter struct {
	*mount.Mounter
	mu     sync.Mutex
	mounts map[string]int // by file system type, or "block" for a device
}

// count reads the mount at a path from the kernel and counts it.
func (m *countingMounter) count(path string) error {
	p, err := m.At(path)
	if err != nil {
		return err
	}
	kind := p.FSType
	if p.Block {
		kind = "block"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mounts == nil {
		m.mounts = map[string]int{}
	}
	m.mounts[kind]++
	return nil
}

func (m *countingMounter) FormatAndMount(ctx context.Context, s mount.Stage) error {
	if err := m.Mounter.FormatAndMount(ctx, s); err != nil {
		return err
	}
	return m.count(s.Path)
}

func (m *countingMounter) BindDevice(ctx context.Context, device, target string, readOnly bool) error {
	if err := m.Mounter.BindDevice(ctx, device, target, readOnly); err != nil {
		return err
	}
	return m.count(target)
}

// check returns an error unless all mounts have the variant's kind.
func (m *countingMounter) check(v variant) error {
	want := cmp.Or(v.FSType, "ext4")
	if v.AccessType == "block" {
		want = "block"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mounts) != 1 || m.mounts[want] < 5 {
		return fmt.Errorf("the mounts are %v, want only %s, at least 5", m.mounts, want)
	}
	return nil
}

func logger(program string) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With("program", program)
}

// state describes the objects on the target that the driver creates, to compare them before and
// after the suite.
func (w *environment) state(ctx context.Context) (string, error) {
	stores, err := w.rpc.BdevLvolGetLvstores(ctx, spdkrpc.BdevLvolGetLvstoresParams{})
	if err != nil {
		return "", err
	}
	lvols, err := w.rpc.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
	if err != nil {
		return "", err
	}
	subsystems, err := w.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
	if err != nil {
		return "", err
	}
	nodes, err := w.rpc.ISCSIGetTargetNodes(ctx)
	if err != nil {
		return "", err
	}
	groups, err := w.rpc.ISCSIGetInitiatorGroups(ctx)
	if err != nil {
		return "", err
	}
	s := ""
	for _, st := range stores {
		s += fmt.Sprintf("%s: %d clusters free, ", st.Name, st.FreeClusters)
	}
	for _, sub := range subsystems {
		if sub.Subtype == "NVMe" {
			s += sub.NQN + ", "
		}
	}
	return s + fmt.Sprintf("%d lvols, %d iSCSI targets, %d initiator groups", len(lvols), len(nodes), len(groups)), nil
}
