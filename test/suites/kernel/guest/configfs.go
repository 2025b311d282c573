package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/connect"
)

// Directories, links and files in configfs define the targets in the guest's kernel.

// configfs creates the parts of a target one after another. After the first error, it does nothing
// further.
type configfs struct {
	root string
	err  error
}

func (c *configfs) dir(path string) {
	if c.err == nil {
		c.err = os.MkdirAll(filepath.Join(c.root, path), 0o755)
	}
}

func (c *configfs) set(path, value string) {
	if c.err == nil {
		// os.WriteFile does not work here, because attributes cannot be created, and each must be
		// set by a single write.
		c.err = write(filepath.Join(c.root, path), value)
	}
}

func (c *configfs) link(path, to string) {
	if c.err == nil {
		c.err = os.Symlink(filepath.Join(c.root, to), filepath.Join(c.root, path))
	}
}

func (c *configfs) remove(path string) {
	if c.err == nil {
		c.err = os.Remove(filepath.Join(c.root, path))
	}
}

func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func mountConfigfs() error {
	if err := modprobe("configfs"); err != nil {
		return err
	}
	err := unix.Mount("configfs", "/sys/kernel/config", "configfs", 0, "")
	if errors.Is(err, unix.EBUSY) {
		return nil
	}
	return err
}

// nvmeTarget is nvmet with volumes in files on a tmpfs.
type nvmeTarget struct {
	configfs
	transport, address, port string
	made                     map[string]string // NQN by volume
}

func newNVMeTarget() *nvmeTarget {
	return &nvmeTarget{configfs: configfs{root: "/sys/kernel/config/nvmet"}, transport: "tcp", address: "127.0.0.1", port: "4420", made: make(map[string]string)}
}

func (t *nvmeTarget) make(_ context.Context, volume string, bytes int64, h connect.Host) (map[string]string, error) {
	file := "/tmp/" + volume
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, bytes)); err != nil {
		return nil, err
	}
	return t.export(volume, file, uuid.NewString(), bytes, h)
}

// export exports a file or a block device as a volume with a UUID, to one host.
func (t *nvmeTarget) export(volume, path, id string, bytes int64, h connect.Host) (map[string]string, error) {
	if len(t.made) == 0 {
		if err := errors.Join(mountConfigfs(), modprobe("nvmet", "nvmet-"+t.transport)); err != nil {
			return nil, err
		}
		t.dir("ports/1")
		if address, _ := os.ReadFile(filepath.Join(t.root, "ports/1/addr_traddr")); !strings.HasPrefix(string(address), t.address) {
			t.set("ports/1/addr_adrfam", "ipv4")
			t.set("ports/1/addr_trtype", t.transport)
			t.set("ports/1/addr_traddr", t.address)
			t.set("ports/1/addr_trsvcid", t.port)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	nqn := "nqn.2026-11.io.spdkgate.test:" + volume
	t.made[volume] = nqn
	subsystem := "subsystems/" + nqn
	t.dir(subsystem)
	t.set(subsystem+"/attr_allow_any_host", "0")
	t.set(subsystem+"/attr_serial", volume)
	t.dir("hosts/" + h.NQN)
	t.link(subsystem+"/allowed_hosts/"+h.NQN, "hosts/"+h.NQN)
	namespace := subsystem + "/namespaces/1"
	t.dir(namespace)
	t.set(namespace+"/device_path", path)
	t.set(namespace+"/device_uuid", id)
	if info.Mode().IsRegular() {
		t.set(namespace+"/buffered_io", "1")
	}
	t.set(namespace+"/enable", "1")
	t.link("ports/1/subsystems/"+nqn, subsystem)
	return map[string]string{
		connect.KeyTargetType: t.transport, connect.KeyTargetAddr: t.address, connect.KeyTargetPort: t.port,
		connect.KeyNQN: nqn, connect.KeyNSUUID: id, connect.KeyLvolSize: fmt.Sprint(bytes),
	}, t.err
}

// secondAddress creates a second port, at an IPv6 address.
func (t *nvmeTarget) secondAddress() connect.Address {
	a := connect.Address{Addr: "::1", Port: "4421"}
	t.dir("ports/2")
	t.set("ports/2/addr_adrfam", "ipv6")
	t.set("ports/2/addr_trtype", "tcp")
	t.set("ports/2/addr_traddr", a.Addr)
	t.set("ports/2/addr_trsvcid", a.Port)
	return a
}

// listen exports a volume on a port; close ends the export.
func (t *nvmeTarget) listen(volume, port string) error {
	t.link("ports/"+port+"/subsystems/"+t.made[volume], "subsystems/"+t.made[volume])
	return t.err
}

func (t *nvmeTarget) close(volume, port string) error {
	t.configfs.remove("ports/" + port + "/subsystems/" + t.made[volume])
	return t.err
}

func (t *nvmeTarget) resize(_ context.Context, volume string, bytes int64) error {
	if err := os.Truncate("/tmp/"+volume, bytes); err != nil {
		return err
	}
	t.set("subsystems/"+t.made[volume]+"/namespaces/1/revalidate_size", "1")
	return t.err
}

func (t *nvmeTarget) remove(_ context.Context, volume string) error {
	subsystem := "subsystems/" + t.made[volume]
	t.configfs.remove("ports/1/subsystems/" + t.made[volume])
	hosts, err := os.ReadDir(filepath.Join(t.root, subsystem, "allowed_hosts"))
	for _, h := range hosts {
		t.configfs.remove(subsystem + "/allowed_hosts/" + h.Name())
	}
	t.set(subsystem+"/namespaces/1/enable", "0")
	t.configfs.remove(subsystem + "/namespaces/1")
	t.configfs.remove(subsystem)
	delete(t.made, volume)
	return errors.Join(err, t.err, ignoreMissing(os.Remove("/tmp/"+volume)))
}
