package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// DefaultDir is the path where the manifests mount kubelet's directory plugins_registry.
const DefaultDir = "/registration"

// csiVersions are the versions that kubelet accepts for CSI drivers.
var csiVersions = []string{"1.0.0"}

// ErrRefused means that kubelet has refused to register the driver.
var ErrRefused = errors.New("kubelet does not register the driver")

// A Registration registers a driver with kubelet.
type Registration struct {
	Driver   string // the driver's name, as in its CSIDriver object
	Endpoint string // the socket of the driver that kubelet connects to, as a path on the node
	Log      *slog.Logger

	interval time.Duration // interval between checks of the socket; 0 means 10 s
}

// SocketPath returns the path of a driver's registration socket in kubelet's directory
// plugins_registry.
func SocketPath(dir, driver string) string { return filepath.Join(dir, driver+"-reg.sock") }

// Check fails if kubelet cannot use the registration.
func (r Registration) Check() error {
	if !filepath.IsAbs(r.Endpoint) || filepath.Clean(r.Endpoint) != r.Endpoint {
		return fmt.Errorf("%q is not an absolute path: specify the path of the driver's socket on the node, such as /var/lib/kubelet/plugins/%s/csi.sock", r.Endpoint, r.Driver)
	}
	return nil
}

// Serve serves kubelet on the registration socket until ctx ends, and then removes the socket, so
// that kubelet unregisters the driver. Serve fails with [ErrRefused] if kubelet refuses the driver.
// The driver must already be listening on its own socket, because kubelet calls it immediately.
// After a restart, kubelet registers the driver again. If the registration socket disappears, for
// example because kubelet's directory was cleaned up, Serve listens again, because kubelet would
// not find the driver without the socket.
func (r Registration) Serve(ctx context.Context, l net.Listener, listen func() (net.Listener, error)) error {
	server := grpc.NewServer()
	refused := make(chan error, 1)
	registerapi.RegisterRegistrationServer(server, &service{Registration: r, refused: refused})
	defer server.Stop()
	for {
		path := l.Addr().String()
		own, err := os.Lstat(path)
		if err != nil {
			return errors.Join(fmt.Errorf("registration socket: %w", err), l.Close())
		}
		served := make(chan error, 1)
		go func() {
			served <- server.Serve(l)
			close(served)
		}()
		gone, err := r.watch(ctx, path, own, refused, served)
		if !gone {
			server.GracefulStop() // wait until kubelet has received the response to its refusal
			<-served              // wait until the socket has been removed
			return err
		}
		r.Log.Warn("the registration socket was removed; listening again", "socket", path)
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false) // the path may now belong to another file
		}
		if err := l.Close(); err != nil {
			return fmt.Errorf("registration socket: %w", err)
		}
		<-served
		if l, err = listen(); err != nil {
			return fmt.Errorf("register with kubelet again: %w", err)
		}
	}
}

// watch waits until ctx ends, kubelet refuses the driver, the server fails, or the socket
// disappears.
func (r Registration) watch(ctx context.Context, path string, own os.FileInfo, refused, served <-chan error) (gone bool, err error) {
	interval := r.interval
	if interval == 0 {
		interval = 10 * time.Second
	}
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case err := <-refused:
			return false, err
		case err := <-served:
			return false, fmt.Errorf("serve kubelet on %s: %w", path, err)
		case <-ticks.C:
			now, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(own, now) {
				return true, nil
			}
		}
	}
}

// service implements kubelet's registration service.
type service struct {
	registerapi.UnimplementedRegistrationServer
	Registration
	refused chan<- error
}

// GetInfo returns the driver's name, socket and versions to kubelet.
func (s *service) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: s.Driver, Endpoint: s.Endpoint, SupportedVersions: csiVersions}, nil
}

// NotifyRegistrationStatus receives kubelet's notification whether it has registered the driver.
func (s *service) NotifyRegistrationStatus(_ context.Context, status *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if status.GetPluginRegistered() {
		s.Log.Info("kubelet has registered the driver", "driver", s.Driver, "endpoint", s.Endpoint)
		return &registerapi.RegistrationStatusResponse{}, nil
	}
	select {
	case s.refused <- fmt.Errorf("%w %s at %s: check that this is the path of the driver's socket on the node, and that no other driver has this name: %s", ErrRefused, s.Driver, s.Endpoint, status.GetError()):
	default: // already refused
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}
