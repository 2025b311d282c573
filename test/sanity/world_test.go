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
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/controller"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/node"
	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A world is a target, the proxy before it, and the driver.
type world struct {
	socket      string // the driver's
	secretsFile string
	rpc         *spdkrpc.Client // straight to the target
	clear       string          // clearMethod of all volumes, empty for the driver's own choice
	mounted     func() error    // what the node mounted is what the variant is about
	closers     []func() error
}

func (w *world) close() error {
	var errs []error
	for i := len(w.closers) - 1; i >= 0; i-- {
		errs = append(errs, w.closers[i]())
	}
	return errors.Join(errs...)
}

func newWorld(ctx context.Context, v variant, dir string, services *errgroup.Group) (_ *world, err error) {
	w := &world{socket: filepath.Join(dir, "csi.sock"), secretsFile: filepath.Join(dir, "secrets.yaml")}
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
	if err := startProxy(ctx, dir, address, socket, services); err != nil {
		return nil, err
	}
	return w, w.startDriver(ctx, v, dir, "https://"+address+"/", services)
}

// startTarget makes a target with two lvstores, and returns its socket.
func (w *world) startTarget(ctx context.Context, v variant, dir string) (string, error) {
	socket := os.Getenv("SPDK_SOCK")
	if !v.Real {
		target, err := spdktest.Start(spdktest.Options{DataDir: filepath.Join(dir, "data")})
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
		w.clear = "unmap-may-expose-deleted-data" // without it these releases make no clones
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
	return socket, nil
}

// proxyConfig gives the driver's user what the driver needs, and nothing else.
const proxyConfig = `listen: %s
tls: {self_signed_dir: %q}
target: {socket: %q}
users:
  - {name: csi, password_hash: %q, roles: [csi-controller]}
log: {level: error}
`

const password = "not a secret"

func startProxy(ctx context.Context, dir, address, socket string, services *errgroup.Group) error {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "spdk-proxy.yaml")
	text := fmt.Sprintf(proxyConfig, address, filepath.Join(dir, "tls"), socket, hash)
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

func (w *world) startDriver(ctx context.Context, v variant, dir, url string, services *errgroup.Group) error {
	target := map[string]any{
		"name": targetName, "rpcURL": url, "caFile": filepath.Join(dir, "tls", "tls.crt"),
		"targetType": v.TargetType, "targetAddr": "127.0.0.1", "lvstores": []string{"lvs0", "lvs1"},
	}
	if v.TargetType == "loop" {
		target["loopDir"] = filepath.Join(dir, "data")
	}
	text, err := json.Marshal(map[string]any{"nodes": []any{target}})
	if err != nil {
		return err
	}
	config, err := driver.ParseConfig(text)
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
	controller, err := controller.New(config, credentials, log)
	if err != nil {
		return err
	}
	w.closers = append(w.closers, func() error { controller.Close(); return nil })
	node, err := w.newNode(v, log)
	if err != nil {
		return err
	}
	l, err := driver.Listen("unix://" + w.socket)
	if err != nil {
		return err
	}
	server := driver.Server{Identity: &driver.Identity{Name: driver.DefaultName, Version: "sanity"}, Controller: controller, Node: node, Log: log}
	services.Go(func() error { return server.Serve(ctx, l) })
	return nil
}

// newNode is the real node service. Where this kernel cannot attach what the target exports, what is below it is not.
func (w *world) newNode(v variant, log *slog.Logger) (*node.Node, error) {
	if v.TargetType != "loop" {
		s := newStandIn()
		w.mounted = func() error { return nil }
		return node.New(nodeName, 0, filepath.Dir(w.socket), s, s, log)
	}
	connector, err := connect.New(connect.HostOf(nodeName), connect.Options{AllowLoop: true, Log: log})
	if err != nil {
		return nil, err
	}
	m := &witness{Mounter: mount.New(mount.Options{Log: log})}
	w.mounted = func() error { return m.saw(v) }
	return node.New(nodeName, 0, filepath.Dir(w.socket), connector, m, log)
}

// A witness looks at what was really mounted.
type witness struct {
	*mount.Mounter
	mu     sync.Mutex
	points map[string]int
}

func (w *witness) look(path string) error {
	p, err := w.At(path)
	if err != nil {
		return err
	}
	what := p.FSType
	if p.Block {
		what = "block"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.points == nil {
		w.points = map[string]int{}
	}
	w.points[what]++
	return nil
}

func (w *witness) FormatAndMount(ctx context.Context, s mount.Stage) error {
	if err := w.Mounter.FormatAndMount(ctx, s); err != nil {
		return err
	}
	return w.look(s.Path)
}

func (w *witness) BindDevice(ctx context.Context, device, target string, readOnly bool) error {
	if err := w.Mounter.BindDevice(ctx, device, target, readOnly); err != nil {
		return err
	}
	return w.look(target)
}

func (w *witness) saw(v variant) error {
	want := cmp.Or(v.FSType, "ext4")
	if v.AccessType == "block" {
		want = "block"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.points) != 1 || w.points[want] < 5 {
		return fmt.Errorf("mounted were %v, instead of %s only", w.points, want)
	}
	return nil
}

func logger(who string) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With("who", who)
}

// state describes everything that may be left behind.
func (w *world) state(ctx context.Context) (string, error) {
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
