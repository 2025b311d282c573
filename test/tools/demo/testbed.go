package main

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

const (
	lvstore     = "lvs0"
	targetName  = "demo-target"
	nodeName    = "demo-node"
	storageMiB  = 1024
	csiUser     = "kubernetes"
	auditorUser = "auditor"
)

// A testbed holds all of the demo's processes, whose files are in one directory.
type testbed struct {
	dir       string
	bin       string // directory with spdk-proxy and spdk-csi
	target    *spdktest.Target
	local     *spdkrpc.Client // the administrator's client, directly on the target's socket
	proxyURL  string
	passwords map[string]string
	programs  []*exec.Cmd
	conn      *grpc.ClientConn
}

func (w *testbed) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

// startTarget starts the simulated target with an lvstore on a sparse file.
func (w *testbed) startTarget(ctx context.Context) (free uint64, err error) {
	w.target, err = spdktest.Start(spdktest.Options{Socket: w.path("spdk.sock"), DataDir: w.path("data")})
	if err != nil {
		return 0, err
	}
	media := w.path("disk.img")
	if err := os.WriteFile(media, nil, 0o600); err != nil {
		return 0, err
	}
	if err := os.Truncate(media, storageMiB<<20); err != nil {
		return 0, err
	}
	w.local = spdkrpc.NewClient(spdkrpc.NewSocket(w.target.Socket()))
	if _, err := w.local.BdevAIOCreate(ctx, spdkrpc.BdevAIOCreateParams{Name: "aio0", Filename: media, BlockSize: new(uint32(4096))}); err != nil {
		return 0, err
	}
	if _, err := w.local.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "aio0", LvsName: lvstore}); err != nil {
		return 0, err
	}
	return w.freeClusters(ctx)
}

func (w *testbed) freeClusters(ctx context.Context) (uint64, error) {
	stores, err := w.local.BdevLvolGetLvstores(ctx, spdkrpc.BdevLvolGetLvstoresParams{LvsName: new(lvstore)})
	if err != nil {
		return 0, err
	}
	return stores[0].FreeClusters, nil
}

const proxyConfig = `listen: %s
tls:
  self_signed_dir: %s
target:
  socket: %s
  accept_loading_what_hosts_write: true
  freeze: {dir: %s}
users:
  - {name: kubernetes, password_hash: %q, roles: [csi-controller]}
  - {name: auditor, password_hash: %q, roles: [read-only]}
log: {format: json}
`

// startProxy starts spdk-proxy with TLS and two users.
func (w *testbed) startProxy(ctx context.Context) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	w.proxyURL = "https://" + address + "/"
	w.passwords = map[string]string{csiUser: rand.Text(), auditorUser: rand.Text()}
	hashes := map[string]string{}
	for user, password := range w.passwords {
		cmd := exec.CommandContext(ctx, filepath.Join(w.bin, "spdk-proxy"), "hash-password")
		cmd.Stdin = strings.NewReader(password + "\n")
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("spdk-proxy hash-password: %w", err)
		}
		hashes[user] = strings.TrimSpace(string(out))
		if err := os.WriteFile(w.path(user+".password"), []byte(password+"\n"), 0o600); err != nil {
			return err
		}
	}
	config := fmt.Sprintf(proxyConfig, address, w.path("tls"), w.target.Socket(), w.path("frozen"), hashes[csiUser], hashes[auditorUser])
	if err := os.WriteFile(w.path("spdk-proxy.yaml"), []byte(config), 0o600); err != nil {
		return err
	}
	if err := w.start("spdk-proxy", "serve", "--config", w.path("spdk-proxy.yaml")); err != nil {
		return err
	}
	return w.wait(ctx, "spdk-proxy", func() error {
		c, err := w.as(auditorUser)
		if err != nil {
			return err
		}
		_, err = c.SpdkGetVersion(ctx)
		return err
	})
}

// as returns a client for one of the proxy's users.
func (w *testbed) as(user string) (*spdkrpc.Client, error) {
	pem, err := os.ReadFile(w.path("tls", "tls.crt"))
	if err != nil {
		return nil, err
	}
	ca := x509.NewCertPool()
	if !ca.AppendCertsFromPEM(pem) {
		return nil, errors.New("the proxy's certificate cannot be read")
	}
	h, err := spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{URL: w.proxyURL, Username: user, Password: w.passwords[user], CA: ca})
	if err != nil {
		return nil, err
	}
	return spdkrpc.NewClient(h), nil
}

// startDriver starts spdk-csi as controller and node in one process.
func (w *testbed) startDriver(ctx context.Context) error {
	config, err := json.MarshalIndent(map[string]any{"nodes": []any{map[string]any{
		"name": targetName, "rpcURL": w.proxyURL, "caFile": w.path("tls", "tls.crt"),
		"targetType": "loop", "loopDir": w.path("data"), "targetAddr": "127.0.0.1",
	}}}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.path("config.json"), config, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(w.path("secret.json"), []byte(w.secrets()["secret.json"]), 0o600); err != nil {
		return err
	}
	err = w.start("spdk-csi", "--controller", "--node", "--endpoint", "unix://"+w.path("csi.sock"),
		"--nodeid", nodeName, "--node-allow-loop")
	if err != nil {
		return err
	}
	w.conn, err = grpc.NewClient("unix://"+w.path("csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	return err
}

// secrets returns the secrets that Kubernetes passes to the driver in each request.
func (w *testbed) secrets() map[string]string {
	text, _ := json.Marshal(map[string]any{"rpcTokens": []any{map[string]any{
		"name": targetName, "username": csiUser, "password": w.passwords[csiUser],
	}}})
	return map[string]string{"secret.json": string(text)}
}

// start runs one of the programs in the background, with a log file.
func (w *testbed) start(name string, args ...string) error {
	log, err := os.Create(w.path(name + ".log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(w.bin, name), args...)
	cmd.Env = append(os.Environ(), "SPDKCSI_CONFIG="+w.path("config.json"), "SPDKCSI_SECRET="+w.path("secret.json"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must reach only the demo, which stops the programs in order
	if err := cmd.Start(); err != nil {
		return err
	}
	w.programs = append(w.programs, cmd)
	return nil
}

// wait calls ask until it succeeds. The error contains the program's log.
func (w *testbed) wait(ctx context.Context, name string, ask func() error) error {
	var err error
	for range 100 {
		if err = ask(); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	log, _ := os.ReadFile(w.path(name + ".log"))
	return fmt.Errorf("%s does not respond: %w\n%s", name, err, log)
}

// stop stops everything in reverse order.
func (w *testbed) stop() error {
	var errs []error
	if w.conn != nil {
		errs = append(errs, w.conn.Close())
	}
	for i := len(w.programs) - 1; i >= 0; i-- {
		cmd := w.programs[i]
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err))
		}
	}
	if w.target != nil {
		errs = append(errs, w.target.Close())
	}
	return errors.Join(errs...)
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
