package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

const (
	user     = "csi"
	password = "only for this run"
	storeMiB = 1 << 20 // the size of each lvstore, 1 TiB
)

// A server is a storage server, which consists of a simulated target and its proxy.
type server struct {
	name, url string
	target    *spdktest.Target
	stop      func() error // stops the proxy
	stopOnce  sync.Once
	stopped   error
}

func (s *server) stopProxy() error {
	s.stopOnce.Do(func() { s.stopped = s.stop() })
	return s.stopped
}

// A testbed holds all storage servers.
type testbed struct {
	dir     string
	servers []*server
	rpcs    int // that the targets have received
}

func newTestbed(s settings) (_ *testbed, err error) {
	dir, err := os.MkdirTemp("", "spdkgate-scale-")
	if err != nil {
		return nil, err
	}
	w := &testbed{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	hash, err := authn.HashPassword(password)
	if err != nil {
		return nil, err
	}
	for i := range s.targets {
		one, err := w.newServer(fmt.Sprintf("storage-%d", i+1), hash, s)
		if err != nil {
			return nil, err
		}
		w.servers = append(w.servers, one)
	}
	return w, w.writeFiles(s)
}

func (w *testbed) newServer(name, hash string, s settings) (*server, error) {
	target, err := spdktest.Start(spdktest.Options{Poll: s.poll})
	if err != nil {
		return nil, err
	}
	one := &server{name: name, target: target, stop: func() error { return nil }}
	// All proxies present the certificate of the first one, which all of them can read.
	path := filepath.Join(w.dir, name+".yaml")
	text := fmt.Sprintf("listen: \"127.0.0.1:0\"\ntls: {self_signed_dir: %q}\ntarget: {socket: %q}\nusers:\n  - {name: %s, password_hash: %q, roles: [csi-controller]}\n",
		filepath.Join(w.dir, "tls"), target.Socket(), user, hash)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return one, err
	}
	c, err := config.Load(path)
	if err != nil {
		return one, err
	}
	p, err := proxy.NewServer(c, proxy.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return one, err
	}
	l, err := p.Listen()
	if err != nil {
		return one, err
	}
	one.url = "https://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, l) }()
	one.stop = func() error {
		cancel()
		return <-ended
	}
	return one, nil
}

// writeFiles writes the controller's config.json and secret.json.
func (w *testbed) writeFiles(s settings) error {
	var nodes, tokens []any
	for _, one := range w.servers {
		nodes = append(nodes, map[string]any{
			"name": one.name, "rpcURL": one.url, "caFile": filepath.Join(w.dir, "tls", "tls.crt"), "targetType": "nvme-tcp", "targetAddr": "127.0.0.1", "lvstores": []string{"lvs0"},
		})
		tokens = append(tokens, map[string]any{"name": one.name, "username": user, "password": password})
	}
	configText, err := json.Marshal(map[string]any{"nodes": nodes, "check": map[string]string{"interval": "0"}, "placement": map[string]string{"targetTimeout": s.targetTimeout.String()}})
	if err != nil {
		return err
	}
	secret, err := json.Marshal(map[string]any{"rpcTokens": tokens})
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(w.dir, "config.json"), configText, 0o600), os.WriteFile(filepath.Join(w.dir, "secret.json"), secret, 0o600))
}

// fill creates the lvstores and the initial volumes, without using the proxies.
func (w *testbed) fill(ctx context.Context, volumes int) error {
	const atOnce = 4 // storage servers
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, s := range w.servers {
		n := volumes / len(w.servers)
		if i < volumes%len(w.servers) {
			n++
		}
		g.Go(func() error { return s.fill(ctx, n) })
	}
	return g.Wait()
}

func (s *server) fill(ctx context.Context, volumes int) error {
	socket := spdkrpc.NewSocket(s.target.Socket())
	defer func() { _ = socket.Close() }()
	rpc := spdkrpc.NewClient(socket)
	if _, err := rpc.BdevNullCreate(ctx, spdkrpc.BdevNullCreateParams{Name: "disk", NumBlocks: storeMiB << 8, BlockSize: 4096}); err != nil {
		return err
	}
	if _, err := rpc.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk", LvsName: "lvs0"}); err != nil {
		return err
	}
	const inFlight, oneExportedIn = 16, 10
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for i := range volumes {
		g.Go(func() error {
			id, err := rpc.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{LvolName: fmt.Sprintf("pvc-%s-%d", s.name, i), LvsName: new("lvs0"), SizeInMiB: 4, ThinProvision: new(true)})
			if err != nil || i%oneExportedIn > 0 {
				return err
			}
			nqn := export.NQN(id)
			if err := rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: nqn, SerialNumber: new("SCALE"), MaxNamespaces: new(uint32(1))}); err != nil {
				return err
			}
			_, err = rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{NQN: nqn, Namespace: spdkrpc.NVMfNamespaceParams{BdevName: id}})
			return err
		})
	}
	return g.Wait()
}

// calls returns the number of RPCs that the targets have received. It is not safe for concurrent
// use.
func (w *testbed) calls() int {
	for _, s := range w.servers {
		w.rpcs += len(s.target.Calls())
		s.target.ForgetCalls()
	}
	return w.rpcs
}

// stop stops the first n storage servers.
func (w *testbed) stop(n int) error {
	var failed []error
	for _, s := range w.servers[:min(n, len(w.servers))] {
		failed = append(failed, s.stopProxy())
	}
	return errors.Join(failed...)
}

func (w *testbed) close() error {
	var failed []error
	var all sync.WaitGroup
	for _, s := range w.servers {
		all.Go(func() { _ = s.stopProxy() })
	}
	all.Wait()
	for _, s := range w.servers {
		failed = append(failed, s.target.Close())
	}
	return errors.Join(append(failed, os.RemoveAll(w.dir))...)
}
