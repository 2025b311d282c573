package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// setUp mounts the kernel's file systems, loads modules and sets up the network.
func setUp() error {
	for _, m := range []struct{ fsType, path string }{
		{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"},
	} {
		if err := os.MkdirAll(m.path, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.fsType, m.path, m.fsType, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.path, err)
		}
	}
	if err := os.Mkdir("/run/lock", 0o755); err != nil {
		return err
	}
	if err := modprobe("virtio_pci", "virtio_net"); err != nil {
		return err
	}
	if err := address("lo", "127.0.0.1/8"); err != nil {
		return err
	}
	// In qemu's user network, the host's loopback is 10.0.2.2.
	return address("eth0", guestAddress+"/24")
}

// modprobe loads kernel modules. nvme-tcp is not among them, because the connector loads it.
func modprobe(modules ...string) error {
	for _, m := range modules {
		if _, err := run("modprobe", m); err != nil {
			return err
		}
	}
	return nil
}

// run runs a tool and returns its output.
func run(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func address(iface, cidr string) error {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(iface)
	if err != nil {
		return err
	}
	mask := ^uint32(0) << (32 - prefix.Bits())
	for _, step := range []struct {
		ioctl uint
		set   func() error
	}{
		{unix.SIOCSIFADDR, func() error { return request.SetInet4Addr(prefix.Addr().AsSlice()) }},
		{unix.SIOCSIFNETMASK, func() error {
			return request.SetInet4Addr([]byte{byte(mask >> 24), byte(mask >> 16), byte(mask >> 8), byte(mask)})
		}},
		{unix.SIOCSIFFLAGS, func() error { request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
	} {
		if err := step.set(); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, step.ioctl, request); err != nil {
			return fmt.Errorf("address of %s: %w", iface, err)
		}
	}
	return nil
}

// parameters returns the parameters on the kernel's command line.
func parameters() (map[string]string, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, err
	}
	params := make(map[string]string)
	for _, p := range strings.Fields(string(line)) {
		key, value, _ := strings.Cut(p, "=")
		params[key] = value
	}
	return params, nil
}
