package connect

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func noModprobe(ran *[]string) fakeExec {
	return fakeExec(func(line string) (string, int) {
		*ran = append(*ran, line)
		return "modprobe: FATAL: Module not found in directory /lib/modules/6.12.0", 1
	})
}

// A module that is loaded or built in is not loaded again, because many hosts do not have modprobe.
func TestPresentModulesAreNotLoadedAgain(t *testing.T) {
	write := func(root, path, text string) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	for name, prepare := range map[string]func(root string){
		"loaded": func(root string) { write(root, "sys/module/nvme_tcp/refcnt", "0\n") },
		"built in": func(root string) {
			write(root, "proc/sys/kernel/osrelease", "6.12.0-talos\n")
			write(root, "lib/modules/6.12.0-talos/modules.builtin", "kernel/drivers/nvme/host/nvme-core.ko\nkernel/drivers/nvme/host/nvme-tcp.ko\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			prepare(root)
			var ran []string
			require.NoError(t, LoadModules(t.Context(), []string{"nvme-tcp"}, Options{Root: root, Exec: noModprobe(&ran)}))
			assert.Empty(t, ran)
			assert.Equal(t, []string{"nvme-tcp"}, LoadedTransports(Options{Root: root}))
			err := LoadModules(t.Context(), []string{"nvme-tcp", "nvme-rdma", "iscsi"}, Options{Root: root, Exec: noModprobe(&ran)})
			require.ErrorIs(t, err, ErrUnsupported)
			assert.Equal(t, []string{"modprobe nvme-rdma", "modprobe iscsi_tcp"}, ran)
		})
	}
}

func TestMissingModulesAreReported(t *testing.T) {
	root := t.TempDir()
	assert.Empty(t, LoadedTransports(Options{Root: root}))
	var ran []string
	err := LoadModules(t.Context(), []string{"nvme-tcp"}, Options{Root: root, Exec: noModprobe(&ran)})
	require.ErrorIs(t, err, ErrUnsupported)
	for _, says := range []string{"module nvme-tcp", "FATAL", "/etc/modules-load.d", "machine.kernel.modules"} {
		require.ErrorContains(t, err, says)
	}
	t.Setenv("PATH", t.TempDir())
	err = LoadModules(t.Context(), []string{"iscsi"}, Options{Root: root})
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "module iscsi_tcp")
	require.ErrorContains(t, err, "modprobe is not installed here")

	require.ErrorContains(t, LoadModules(t.Context(), []string{"nvme_tcp"}, Options{Root: root}), "use nvme-tcp")
	loads := fakeExec(func(line string) (string, int) { ran = append(ran, line); return "", 0 })
	require.NoError(t, LoadModules(t.Context(), []string{"nvme-rdma"}, Options{Root: root, Exec: loads}))
	assert.Equal(t, "modprobe nvme-rdma", ran[len(ran)-1])
}

// If the kernel does not support the transport, the error names the missing module instead of
// reporting a refusal.
func TestConnectNamesTheMissingModule(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	k.remove("sys/module/nvme_tcp")
	var ran []string
	c.transports[TCP].(*nvme).exec = noModprobe(&ran)
	k.exchange = func(string) error { return &os.PathError{Op: "write", Path: "/dev/nvme-fabrics", Err: syscall.EINVAL} }
	_, err := c.Connect(t.Context(), export1)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "the module nvme-tcp, and it cannot be loaded from here")
}
