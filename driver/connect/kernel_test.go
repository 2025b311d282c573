package connect

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// kernel is a fake kernel: a file tree that replaces /sys, /dev and /proc, with functions that run
// when some of the files are written.
type kernel struct {
	t    *testing.T
	root string
	node *node

	mu       sync.Mutex
	writes   []string // path below root = text
	onWrite  func(path, text string) error
	exchange func(options string) error
	held     map[string]bool // devices opened exclusively
	rdevs    map[string]uint64

	accesses, failAt int // number of accesses to the node, and index of the access that fails with EIO
}

// access counts an access to the node, and returns EIO if it is the access that must fail.
func (k *kernel) access() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.accesses++; k.accesses == k.failAt {
		return syscall.EIO
	}
	return nil
}

func newKernel(t *testing.T) *kernel {
	k := &kernel{t: t, root: t.TempDir(), held: map[string]bool{}, rdevs: map[string]uint64{}}
	k.node = newNode(k.root)
	k.node.list = func(path string) ([]string, error) {
		if err := k.access(); err != nil {
			return nil, err
		}
		return list(path)
	}
	k.node.write = func(path, text string) error {
		if err := k.access(); err != nil {
			return err
		}
		path, err := filepath.Rel(k.root, path)
		require.NoError(t, err)
		k.mu.Lock()
		k.writes = append(k.writes, path+"="+text)
		k.mu.Unlock()
		if _, err := os.Lstat(filepath.Join(k.root, path)); err != nil {
			return err
		}
		if k.onWrite != nil {
			return k.onWrite(path, text)
		}
		return nil
	}
	k.node.exchange = func(path, text string) (string, error) {
		require.Equal(t, k.root+"/dev/nvme-fabrics", path)
		k.mu.Lock()
		k.writes = append(k.writes, "fabrics="+text)
		k.mu.Unlock()
		if k.exchange == nil {
			return "", errors.New("no target is simulated")
		}
		if err := k.exchange(text); err != nil {
			return "", err
		}
		return "instance=0,cntlid=1", nil
	}
	k.node.claim = func(path string) error {
		if err := k.access(); err != nil {
			return err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.held[filepath.Base(path)] {
			return &fs.PathError{Op: "open", Path: path, Err: syscall.EBUSY}
		}
		return nil
	}
	k.node.rdev = func(path string) (uint64, error) {
		if err := k.access(); err != nil {
			return 0, err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if rdev, ok := k.rdevs[filepath.Base(path)]; ok {
			return rdev, nil
		}
		return 0, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
	}
	k.file("proc/self/mountinfo", "")
	k.file("dev/nvme-fabrics", "")
	k.dir("sys/module/nvme_tcp")
	k.dir("sys/block")
	return k
}

func (k *kernel) dir(path string) {
	require.NoError(k.t, os.MkdirAll(filepath.Join(k.root, path), 0o700))
}

func (k *kernel) file(path, text string) {
	k.dir(filepath.Dir(path))
	path = filepath.Join(k.root, path)
	// A concurrent reader sees either the old or the new text, as with a real kernel.
	require.NoError(k.t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(k.t, os.Rename(path+".new", path))
}

func (k *kernel) link(path, to string) {
	k.dir(filepath.Dir(path))
	require.NoError(k.t, os.Symlink(to, filepath.Join(k.root, path)))
}

func (k *kernel) remove(path string) { require.NoError(k.t, os.RemoveAll(filepath.Join(k.root, path))) }

// block adds a block device at path (relative to /sys), its link in /sys/block, and its device
// node.
func (k *kernel) block(path string, minor uint32, bytes int64) {
	name := filepath.Base(path)
	k.file(path+"/dev", fmt.Sprintf("259:%d\n", minor))
	k.file(path+"/size", fmt.Sprintf("%d\n", bytes/512))
	if _, err := os.Lstat(filepath.Join(k.root, "sys/block", name)); err != nil {
		k.link("sys/block/"+name, filepath.Join(k.root, path))
	}
	k.mu.Lock()
	k.rdevs[name] = unix.Mkdev(259, minor)
	k.mu.Unlock()
}

func (k *kernel) log() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() { k.writes = nil }()
	return k.writes
}

// connector returns a connector that uses this kernel.
func (k *kernel) connector(transports map[Transport]transport) *byTransport {
	return connectorOf(defaultTimeout, testLog(k.t), transports)
}

// serveTCP starts a server on a loopback address, which serves one connection at a time.
func serveTCP(t *testing.T, serve func(net.Conn)) (port string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			c.Close()
		}
	}()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// nvmeKernel is a fake kernel with NVMe controllers and namespaces.
type nvmeKernel struct {
	*kernel
	host      Host
	multipath bool
}

func newNVMeKernel(t *testing.T, multipath bool) (*nvmeKernel, *byTransport) {
	k := &nvmeKernel{kernel: newKernel(t), host: HostOf("worker-1"), multipath: multipath}
	k.dir("sys/class/nvme-subsystem")
	k.dir("sys/class/nvme")
	k.onWrite = func(path, _ string) error {
		if filepath.Base(path) == "delete_controller" {
			k.removeController(filepath.Base(filepath.Dir(path)))
		}
		return nil
	}
	n := &nvme{node: k.node, host: k.host, exec: noExec{t}, log: testLog(t)}
	return k, k.connector(map[Transport]transport{TCP: n, RDMA: n})
}

// controller adds the controller nvme<i> to the subsystem nvme-subsys<subsystem>.
func (k *nvmeKernel) controller(i, subsystem int, nqn, hostNQN, state, address string) {
	dir := fmt.Sprintf("sys/devices/virtual/nvme-fabrics/ctl/nvme%d", i)
	for attribute, value := range map[string]string{
		"subsysnqn": nqn, "hostnqn": hostNQN, "state": state, "transport": "tcp", "model": "SPDK bdev Controller                    ",
		"address": "traddr=" + address + ",trsvcid=4420,src_addr=10.0.2.15", "delete_controller": "", "rescan_controller": "",
	} {
		k.file(dir+"/"+attribute, value+"\n")
	}
	k.link(fmt.Sprintf("sys/class/nvme/nvme%d", i), filepath.Join(k.root, dir))
	s := fmt.Sprintf("sys/devices/virtual/nvme-subsystem/nvme-subsys%d", subsystem)
	k.file(s+"/subsysnqn", nqn+"\n")
	k.link(fmt.Sprintf("%s/nvme%d", s, i), filepath.Join(k.root, dir))
	if _, err := os.Lstat(filepath.Join(k.root, fmt.Sprintf("sys/class/nvme-subsystem/nvme-subsys%d", subsystem))); err != nil {
		k.link(fmt.Sprintf("sys/class/nvme-subsystem/nvme-subsys%d", subsystem), filepath.Join(k.root, s))
	}
}

func (k *nvmeKernel) set(controller int, attribute, value string) {
	k.file(fmt.Sprintf("sys/devices/virtual/nvme-fabrics/ctl/nvme%d/%s", controller, attribute), value+"\n")
}

// namespace adds a namespace, laid out as in kernels with or without native multipath.
func (k *nvmeKernel) namespace(controller, subsystem, index int, wwid string, bytes int64) string {
	name := fmt.Sprintf("nvme%dn%d", subsystem, index)
	dir := fmt.Sprintf("sys/devices/virtual/nvme-fabrics/ctl/nvme%d/nvme%dn%d", controller, controller, index)
	if k.multipath {
		k.file(fmt.Sprintf("sys/devices/virtual/nvme-fabrics/ctl/nvme%d/nvme%dc%dn%d/wwid", controller, subsystem, controller, index), wwid+"\n")
		dir = fmt.Sprintf("sys/devices/virtual/nvme-subsystem/nvme-subsys%d/%s", subsystem, name)
	} else {
		name = filepath.Base(dir)
	}
	k.file(dir+"/wwid", wwid+"\n")
	k.block(dir, uint32(16*controller+index), bytes)
	return name
}

func (k *nvmeKernel) removeController(name string) {
	k.remove("sys/class/nvme/" + name)
	k.remove("sys/devices/virtual/nvme-fabrics/ctl/" + name)
	subsystems, err := filepath.Glob(filepath.Join(k.root, "sys/devices/virtual/nvme-subsystem/*/", name))
	require.NoError(k.t, err)
	for _, s := range subsystems {
		require.NoError(k.t, os.Remove(s))
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(s), "nvme[0-9]")); len(left) == 0 {
			require.NoError(k.t, os.RemoveAll(filepath.Dir(s)))
			k.remove("sys/class/nvme-subsystem/" + filepath.Base(filepath.Dir(s)))
		}
	}
}
