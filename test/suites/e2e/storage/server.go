package storage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

const (
	lvstore   = "lvs0"
	diskBytes = 64 << 30 // size of a sparse file
	user      = "spdkcsi"

	// TokenUser is the user who authenticates with a token issued by the cluster.
	TokenUser = "spdkcsi-token"
)

// Options describe a storage server.
type Options struct {
	Name    string // its name in the driver's configuration
	Dir     string // for data and configuration
	Proxy   string // the program spdk-proxy
	Address string // the proxy's IP address
	Port    string
	Log     string // file for the proxy's log
	JWKS    string // public keys of the cluster, whose service account Subject is TokenUser
	Issuer  string
	Subject string
}

// A Server is a target with its proxy. Only one goroutine may call its methods at a time.
type Server struct {
	options  Options
	target   *spdktest.Target
	rpc      *spdkrpc.Client // connected to the target without the proxy
	password string
	ca       string
	proxy    *exec.Cmd
}

// DataDir returns the directory with the files of the volumes, below a server's directory.
func DataDir(dir string) string { return filepath.Join(dir, "data") }

func (s *Server) path(name string) string { return filepath.Join(s.options.Dir, name) }

// Start starts a target with an empty lvstore, and the proxy.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{options: o, password: rand.Text()}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if s.target, err = spdktest.Start(spdktest.Options{
		Socket: s.path("spdk.sock"), DataDir: DataDir(o.Dir), WriteMetadata: newMetadataWriter().write,
	}); err != nil {
		return nil, err
	}
	disk := s.path("disk.img")
	if err := errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, diskBytes)); err != nil {
		return nil, err
	}
	s.rpc = spdkrpc.NewClient(spdkrpc.NewSocket(s.target.Socket()))
	if _, err := s.rpc.BdevAIOCreate(ctx, spdkrpc.BdevAIOCreateParams{Name: "disk", Filename: disk, BlockSize: new(uint32(4096))}); err != nil {
		return nil, err
	}
	if _, err := s.rpc.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk", LvsName: lvstore}); err != nil {
		return nil, err
	}
	if err := s.configureProxy(ctx); err != nil {
		return nil, err
	}
	return s, s.StartProxy(ctx)
}

const proxyConfig = `listen: %s
tls: {self_signed_dir: %q}
target:
  socket: %q
  accept_loading_what_hosts_write: true
  freeze: {dir: %q}
  keys: {dir: %q}
users:
  - {name: ` + user + `, password_hash: %q, roles: [csi-controller]}
  - {name: ` + TokenUser + `, jwt: {issuer: cluster, subject: %q}, roles: [csi-controller]}
oidc:
  - {name: cluster, issuer: %q, audience: spdk-proxy, jwks_file: %q}
log: {format: json}
`

// HashPassword returns the hash of a password for the proxy's configuration.
func (s *Server) HashPassword(ctx context.Context, password string) (string, error) {
	cmd := exec.CommandContext(ctx, s.options.Proxy, "hash-password")
	cmd.Stdin = strings.NewReader(password + "\n")
	hash, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("spdk-proxy hash-password: %w", err)
	}
	return strings.TrimSpace(string(hash)), nil
}

func (s *Server) configureProxy(ctx context.Context) error {
	hash, err := s.HashPassword(ctx, s.password)
	if err != nil {
		return err
	}
	text := fmt.Sprintf(proxyConfig, s.options.Address+":"+s.options.Port, s.path("tls"), s.target.Socket(), s.path("frozen"), s.path("keys"), hash, s.options.Subject, s.options.Issuer, s.path("jwks.json"))
	if err := os.WriteFile(s.path("jwks.json"), []byte(s.options.JWKS), 0o644); err != nil {
		return err
	}
	return os.WriteFile(s.path("spdk-proxy.yaml"), []byte(text), 0o600)
}

// StartAnother starts a server like this one, with its own name, port and directory.
func (s *Server) StartAnother(ctx context.Context, name, port, dir string) (*Server, error) {
	o := s.options
	o.Name, o.Port, o.Dir = name, port, dir
	return Start(ctx, o)
}

// Stop stops the proxy and the target.
func (s *Server) Stop() error { return errors.Join(s.StopProxy(), s.target.Close()) }

// StartProxy starts the proxy, for the first time or after StopProxy, and waits until it responds.
func (s *Server) StartProxy(ctx context.Context) error {
	log, err := os.OpenFile(s.options.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.proxy = exec.Command(s.options.Proxy, "serve", "--config", s.path("spdk-proxy.yaml"))
	s.proxy.Stdout, s.proxy.Stderr = log, log
	if err := s.proxy.Start(); err != nil {
		return err
	}
	const attempts, interval = 300, 100 * time.Millisecond
	for range attempts {
		if err = s.ask(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(interval):
		}
	}
	return fmt.Errorf("spdk-proxy does not respond: %w; see %s", err, s.options.Log)
}

// StopProxy stops the proxy. The target continues to run, but cannot be reached.
func (s *Server) StopProxy() error {
	if err := s.proxy.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return s.proxy.Wait()
}

// CA returns the proxy's certificate.
func (s *Server) CA() string { return s.ca }

func (s *Server) ask(ctx context.Context) error {
	ca, err := os.ReadFile(s.path("tls/tls.crt"))
	if err != nil {
		return err
	}
	s.ca = string(ca)
	_, err = Stores(ctx, spdkrpc.HTTPSConfig{URL: s.url(), Username: user, Password: s.password, CA: Authorities(s.ca)})
	return err
}

// Stores returns the names of the lvstores that a proxy shows.
func Stores(ctx context.Context, proxy spdkrpc.HTTPSConfig) ([]string, error) {
	h, err := spdkrpc.NewHTTPS(proxy)
	if err != nil {
		return nil, err
	}
	stores, err := spdkrpc.NewClient(h).BdevLvolGetLvstores(ctx, spdkrpc.BdevLvolGetLvstoresParams{})
	if closer, ok := any(h).(io.Closer); ok {
		err = errors.Join(err, closer.Close())
	}
	var names []string
	for _, s := range stores {
		names = append(names, s.Name)
	}
	return names, err
}

func (s *Server) url() string { return "https://" + s.options.Address + ":" + s.options.Port + "/" }

// Config returns the server's entry in the driver's configuration. caFile is the driver's path to
// the proxy's certificate.
func (s *Server) Config(caFile string) map[string]any {
	return map[string]any{
		"name": s.options.Name, "rpcURL": s.url(), "caFile": caFile, "lvstores": []string{lvstore},
		"targetType": "loop", "loopDir": DataDir(s.options.Dir), "targetAddr": s.options.Address,
	}
}

// Account returns the driver's account on the proxy, in the format of secret.json.
func (s *Server) Account() map[string]any {
	return map[string]any{"name": s.options.Name, "username": user, "password": s.password}
}
