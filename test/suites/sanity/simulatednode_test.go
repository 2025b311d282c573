package sanity

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/mount"
)

// A simulatedNode is a connector and mounter that records connections and mounts in memory. It
// allows the suite to run where only the controller side is real.
type simulatedNode struct {
	mu        sync.Mutex
	connected map[string]connect.Export
	mounted   map[string]mount.Point
}

func newSimulatedNode() *simulatedNode {
	return &simulatedNode{connected: map[string]connect.Export{}, mounted: map[string]mount.Point{}}
}

func (s *simulatedNode) Connect(_ context.Context, e connect.Export) (connect.Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected[e.Target()] = e
	return s.device(e), nil
}

func (s *simulatedNode) device(e connect.Export) connect.Device {
	return connect.Device{Path: "/dev/" + e.Target(), SizeBytes: e.SizeBytes}
}

func (s *simulatedNode) Find(_ context.Context, e connect.Export) (connect.Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.connected[e.Target()]; !ok {
		return connect.Device{}, fmt.Errorf("%s: %w", e, connect.ErrNotConnected)
	}
	return s.device(e), nil
}

func (s *simulatedNode) Disconnect(_ context.Context, e connect.Export) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.mounted {
		if p.Device == s.device(e).Path {
			return fmt.Errorf("%s is mounted at %s: %w", p.Device, p.Path, connect.ErrBusy)
		}
	}
	delete(s.connected, e.Target())
	return nil
}

func (s *simulatedNode) Rescan(_ context.Context, _ connect.Export, want int64) (int64, error) {
	return want, nil
}

func (s *simulatedNode) mount(p mount.Point, directory bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if directory {
		if err := os.MkdirAll(p.Path, 0o750); err != nil {
			return err
		}
	} else if err := os.WriteFile(p.Path, nil, 0o600); err != nil {
		return err
	}
	s.mounted[p.Path] = p
	return nil
}

func (s *simulatedNode) FormatAndMount(_ context.Context, st mount.Stage) error {
	return s.mount(mount.Point{Path: st.Path, Device: st.Device, FSType: "ext4", ReadOnly: st.ReadOnly}, true)
}

func (s *simulatedNode) Bind(_ context.Context, source, target string, readOnly bool, _ []string) error {
	p, err := s.At(source)
	if err != nil {
		return err
	}
	p.Path, p.ReadOnly = target, readOnly
	return s.mount(p, true)
}

func (s *simulatedNode) BindDevice(_ context.Context, device, target string, readOnly bool) error {
	return s.mount(mount.Point{Path: target, Device: device, ReadOnly: readOnly, Block: true}, false)
}

func (s *simulatedNode) Unmount(_ context.Context, path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mounted, path)
	return nil
}

func (s *simulatedNode) UnmountAndRemove(ctx context.Context, path string) error {
	if err := s.Unmount(ctx, path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

func (s *simulatedNode) At(path string) (mount.Point, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.mounted[path]; ok {
		return p, nil
	}
	return mount.Point{}, fmt.Errorf("%s: %w", path, mount.ErrNotMounted)
}

func (s *simulatedNode) Check(_ context.Context, path string) error {
	_, err := s.At(path)
	return err
}

func (s *simulatedNode) Grow(context.Context, string) (int64, error) { return 1, nil }

func (s *simulatedNode) Stats(context.Context, string) (mount.Stats, error) {
	return mount.Stats{TotalBytes: 3, AvailableBytes: 2, UsedBytes: 1, TotalInodes: 3, FreeInodes: 2, UsedInodes: 1}, nil
}

func (s *simulatedNode) DeviceSize(context.Context, string) (int64, error) { return 1, nil }
