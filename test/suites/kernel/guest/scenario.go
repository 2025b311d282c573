package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// scenario runs steps, and stops at the first one that fails.
type scenario struct {
	ctx      context.Context
	host     *host
	target   target
	all      bool           // also run the cases that take a long time
	sameSize bool           // copies cannot be larger than their source
	chosen   *regexp.Regexp // the cases to run; nil means all
	name     string         // of the test case
	limit    time.Duration  // time limit for one step; 0 means 10 minutes

	figures string // figures measured by the current step, for the table of cases
	found   string // figures of earlier steps
}

// inCase runs the steps of a test case.
func (s *scenario) inCase(name string, steps func()) {
	if s.chosen != nil && !s.chosen.MatchString(strings.ReplaceAll(name, " ", "_")) {
		return
	}
	s.name, s.found = name, ""
	defer func() { s.name = "" }()
	steps()
}

// failed is the panic value that ends a scenario after a failed step is reported.
type failed struct{ error }

// step runs one step and reports it with its result.
func (s *scenario) step(name string, do func(ctx context.Context) (detail string, err error)) {
	ctx, cancel := context.WithTimeout(s.ctx, cmp.Or(s.limit, 10*time.Minute))
	defer cancel()
	start := time.Now()
	detail, err := do(ctx)
	r := control.Step{Case: s.name, Name: name, Seconds: time.Since(start).Seconds(), Detail: detail, Figures: s.figures}
	s.figures = ""
	if err != nil {
		r.Error = err.Error()
	}
	s.host.report(r)
	if err != nil {
		panic(failed{err})
	}
}

// refusal checks that an error is of the given kind, and returns the error's text for the report.
func refusal(err, kind error) (string, error) {
	if !errors.Is(err, kind) {
		return "", fmt.Errorf("got error %v, want one of kind %v", err, kind)
	}
	return err.Error(), nil
}

// node is the driver's node side, which connects as one host.
type node struct {
	connect.Connector
	*mount.Mounter
	host connect.Host
}

const mib = 1 << 20

func newNode(id string) (node, error) {
	log := slog.New(slog.DiscardHandler)
	h := connect.HostOf(id)
	c, err := connect.New(h, connect.Options{Log: log, NVMe: connect.NVMeOptions{CtrlLossTimeout: 30 * time.Second, ReconnectDelay: time.Second}})
	return node{c, mount.New(mount.Options{Log: log}), h}, err
}

// volume is a volume on the target, used on a node.
type volume struct {
	*scenario
	node
	name   string
	export connect.Export
	fsType string
	device connect.Device
	sum    [sha256.Size]byte
}

func (v *volume) staging() string { return filepath.Join("/run/staging", v.name) }
func (v *volume) public() string  { return filepath.Join("/run/pods", v.name, "mount") }

// makeVolume creates a volume on the target and exports it to the node.
func (s *scenario) makeVolume(n node, name string, size int64, fsType string) *volume {
	v := &volume{scenario: s, node: n, name: name, fsType: fsType}
	s.step("target: create "+name, func(ctx context.Context) (string, error) {
		m, err := s.target.make(ctx, name, size, n.host)
		if err != nil {
			return "", err
		}
		v.export, err = connect.ParseExport(m, nil)
		return v.export.String(), err
	})
	return v
}

func (v *volume) removeVolume() {
	v.step("target: remove "+v.name, func(ctx context.Context) (string, error) { return "", v.target.remove(ctx, v.name) })
}

// twice runs a step twice. The second run must also succeed.
func (v *volume) twice(name string, do func(ctx context.Context) (string, error)) {
	v.step(name, do)
	v.step(name+", again", do)
}

func (v *volume) connect(ctx context.Context) (string, error) {
	d, err := v.Connect(ctx, v.export)
	if err != nil {
		return "", err
	}
	if v.device != (connect.Device{}) && d != v.device {
		return "", fmt.Errorf("is %+v, was %+v", d, v.device)
	}
	v.device = d
	return fmt.Sprintf("%s, %d MiB, UUID %s", d.Path, d.SizeBytes/mib, d.UUID), nil
}

func (v *volume) disconnect(ctx context.Context) (string, error) {
	if err := v.Disconnect(ctx, v.export); err != nil {
		return "", err
	}
	v.device = connect.Device{}
	_, err := v.Find(ctx, v.export)
	_, err = refusal(err, connect.ErrNotConnected)
	return "", err
}

func (v *volume) stage(mayFormat bool) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		err := v.FormatAndMount(ctx, mount.Stage{Device: v.device.Path, Path: v.staging(), FSType: v.fsType, MayFormat: mayFormat})
		if err != nil {
			return "", err
		}
		st, err := v.Stats(ctx, v.staging())
		return fmt.Sprintf("%s of %d MiB", v.fsType, st.TotalBytes/mib), err
	}
}

func (v *volume) publish(ctx context.Context) (string, error) {
	return v.public(), v.Bind(ctx, v.staging(), v.public(), false, nil)
}

// write writes random bytes to a file at the published path, and syncs that file.
func (v *volume) write(context.Context) (string, error) {
	data := make([]byte, 8*mib)
	rand.Read(data)
	v.sum = sha256.Sum256(data)
	f, err := os.Create(filepath.Join(v.public(), "data"))
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	return "8 MiB", errors.Join(err, f.Sync(), f.Close())
}

// read reads the file from the device, not from the page cache, and compares its contents with what
// was written.
func (v *volume) read(context.Context) (string, error) {
	if err := write("/proc/sys/vm/drop_caches", "3"); err != nil {
		return "", err
	}
	data, err := os.ReadFile(filepath.Join(v.public(), "data"))
	if err != nil {
		return "", err
	}
	if sum := sha256.Sum256(data); !bytes.Equal(sum[:], v.sum[:]) {
		return "", errors.New("the bytes read differ from those written")
	}
	return "the same 8 MiB", nil
}

func (v *volume) grow(to int64) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		size, err := v.Rescan(ctx, v.export, to)
		if err != nil {
			return "", err
		}
		filesystem, err := v.Grow(ctx, v.staging())
		if err != nil {
			return "", err
		}
		if size != to || filesystem != to {
			return "", fmt.Errorf("device has %d bytes, file system %d, want %d", size, filesystem, to)
		}
		v.device.SizeBytes = size
		return fmt.Sprintf("%d MiB", filesystem/mib), nil
	}
}

func (v *volume) unpublish(ctx context.Context) (string, error) {
	return "", v.UnmountAndRemove(ctx, v.public())
}

func (v *volume) unstage(ctx context.Context) (string, error) {
	return "", v.Unmount(ctx, v.staging())
}

// life tests a volume's lifecycle. The volume is used, grown while it is in use, detached, and used
// again.
func (v *volume) life(growTo int64) {
	v.twice("connect", v.connect)
	v.twice("format and mount "+v.fsType, v.stage(true))
	v.twice("publish", v.publish)
	v.step("write", v.write)
	v.step("disconnect while mounted is refused", func(ctx context.Context) (string, error) {
		return refusal(v.Disconnect(ctx, v.export), connect.ErrBusy)
	})
	v.step("target: resize", func(ctx context.Context) (string, error) { return "", v.target.resize(ctx, v.name, growTo) })
	v.twice("grow online", v.grow(growTo))
	v.step("read", v.read)
	v.twice("unpublish", v.unpublish)
	v.twice("unstage", v.unstage)
	v.twice("disconnect", v.disconnect)

	v.step("second use: connect", v.connect)
	v.step("second use: mount without format", v.stage(false))
	v.step("second use: publish", v.publish)
	v.step("second use: read", v.read)
	v.step("second use: unpublish", v.unpublish)
	v.step("second use: unstage", v.unstage)
	v.step("second use: disconnect", v.disconnect)
}

// block uses the volume as a raw block device, and overwrites it.
func (v *volume) block() {
	v.step("connect", v.connect)
	v.twice("publish raw block", func(ctx context.Context) (string, error) {
		return v.public(), v.BindDevice(ctx, v.device.Path, v.public(), false)
	})
	v.step("write and read raw", func(ctx context.Context) (string, error) {
		if err := write(v.public(), "raw data"); err != nil {
			return "", err
		}
		b := make([]byte, 8)
		f, err := os.Open(v.device.Path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		if _, err := f.ReadAt(b, 0); err != nil || string(b) != "raw data" {
			return "", fmt.Errorf("read %q: %w", b, err)
		}
		size, err := v.DeviceSize(ctx, v.public())
		return fmt.Sprintf("%d MiB", size/mib), err
	})
	v.step("disconnect while published is refused", func(ctx context.Context) (string, error) {
		return refusal(v.Disconnect(ctx, v.export), connect.ErrBusy)
	})
	v.twice("unpublish raw block", v.unpublish)
	v.step("publish raw block read-only", func(ctx context.Context) (string, error) {
		if err := v.BindDevice(ctx, v.device.Path, v.public(), true); err != nil {
			return "", err
		}
		if err := write(v.public(), "over"); err == nil {
			return "", errors.New("a read-only raw block volume is writable")
		} else {
			return err.Error(), nil
		}
	})
	v.step("unpublish read-only", v.unpublish)
	v.step("a device with data is not formatted", func(ctx context.Context) (string, error) {
		err := v.FormatAndMount(ctx, mount.Stage{Device: v.device.Path, Path: v.staging(), MayFormat: true})
		return refusal(err, mount.ErrHoldsData)
	})
	v.step("disconnect", v.disconnect)
}
