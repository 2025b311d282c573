package restart

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A forgedLvol is a clone of an external bdev, in an lvstore that a host has written to its volume.
type forgedLvol struct {
	name   string
	uuid   string // the clone's own UUID; "": SPDK chooses one
	parent string // UUID of its parent bdev
	raid   string // name of a RAID with superblock on the clone; "": none
}

// forge returns the contents of a 64 MiB volume with an lvstore, as written by the host's own
// target. An lvstore with clones is dirty, as after a kill, so SPDK loads it only if it can write
// to the volume. An empty lvstore is clean.
func (w *testbed) forge(store string, lvols ...forgedLvol) []byte {
	w.t.Helper()
	ids := map[string]string{}
	image := w.asOwnTarget(len(lvols) == 0, func(call func(method string, params p, result any)) {
		call("bdev_lvol_create_lvstore", p{"bdev_name": "own", "lvs_name": store, "cluster_sz": 1 << 20}, nil)
		for i, l := range lvols {
			parent, id := fmt.Sprint("parent", i), ""
			call("bdev_malloc_create", p{"name": parent, "num_blocks": 4096, "block_size": 4096, "uuid": l.parent}, nil)
			call("bdev_lvol_clone_bdev", p{"bdev": parent, "lvs_name": store, "clone_name": l.name}, &id)
			if l.raid != "" {
				call("bdev_raid_create", p{"name": l.raid, "raid_level": "concat", "strip_size_kb": 4, "base_bdevs": []string{id}, "superblock": true}, nil)
			}
			if l.uuid != "" {
				ids[id] = l.uuid
			}
		}
	})
	for from, to := range ids {
		w.replace(image, from, to)
	}
	return image
}

// asOwnTarget returns the contents of the 64 MiB bdev named own after the function do has made
// calls to a second target. That target is then killed, unless clean is true.
func (w *testbed) asOwnTarget(clean bool, do func(call func(method string, params p, result any))) []byte {
	w.t.Helper()
	path, socketPath := w.at("forged.img"), w.at("forge.sock")
	require.NoError(w.t, os.WriteFile(path, nil, 0o600))
	require.NoError(w.t, os.Truncate(path, 64<<20))
	process := exec.Command(os.Getenv("SPDK_TGT"), append(ownCore(), "-r", socketPath)...)
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(w.t, process.Start())
	end := func() { _ = process.Process.Kill(); _ = process.Wait(); _ = os.Remove(socketPath) }
	defer end()
	socket := spdkrpc.NewSocket(socketPath)
	defer func() { _ = socket.Close() }()
	require.Eventually(w.t, func() bool { return socket.Call(w.t.Context(), "spdk_get_version", nil, nil) == nil }, long, 50*time.Millisecond)
	call := func(method string, params p, result any) {
		require.NoError(w.t, socket.Call(w.t.Context(), method, params, result), method)
	}
	call("bdev_aio_create", p{"name": "own", "filename": path, "block_size": 4096}, nil)
	do(call)
	time.Sleep(time.Second)
	if clean {
		require.NoError(w.t, process.Process.Signal(syscall.SIGTERM))
		_ = process.Wait()
	}
	end()
	image, err := os.ReadFile(path)
	require.NoError(w.t, err)
	return image
}

// replace replaces a UUID in an lvstore's metadata, which must contain the UUID exactly once.
func (w *testbed) replace(image []byte, from, to string) {
	w.t.Helper()
	replaced := 0
	for at := 0; at < min(len(image), 8<<20); at += 4096 { // blobstore's metadata pages end with their CRC
		page := image[at : at+4096]
		if i := bytes.Index(page, []byte(from)); i >= 0 {
			require.Equal(w.t, binary.LittleEndian.Uint32(page[4092:]), crc(page))
			copy(page[i:], to)
			binary.LittleEndian.PutUint32(page[4092:], crc(page))
			replaced++
		}
	}
	require.Equal(w.t, 1, replaced)
}

func crc(page []byte) uint32 {
	return crc32.Checksum(page[:4092], crc32.MakeTable(crc32.Castagnoli))
}

// ownCore returns arguments that keep a second SPDK process from slowing down the target.
func ownCore() []string {
	mask := "0x1"
	if runtime.NumCPU() > 1 {
		mask = "0x2"
	}
	return []string{"--no-huge", "-s", "1024", "-m", mask, "--disable-cpumask-locks"}
}

const hostNQN = "nqn.2014-08.org.nvmexpress:uuid:7d9c0a8e-5b1f-4c02-9a57-000000000001"

// export exports a bdev over NVMe/TCP.
func (w *testbed) export(by spdkrpc.Caller, nqn, bdev string) error {
	w.t.Helper()
	if w.port == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(w.t, err)
		w.port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		require.NoError(w.t, l.Close())
	}
	for _, c := range []struct {
		method string
		params p
	}{
		{"nvmf_create_subsystem", p{"nqn": nqn, "serial_number": "s", "ana_reporting": true}},
		{"nvmf_subsystem_add_ns", p{"nqn": nqn, "namespace": p{"bdev_name": bdev}}},
		{"nvmf_subsystem_add_host", p{"nqn": nqn, "host": hostNQN}},
		{"nvmf_subsystem_add_listener", p{"nqn": nqn, "listen_address": p{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": w.port}}},
	} {
		if err := by.Call(w.t.Context(), c.method, c.params, nil); err != nil {
			_ = by.Call(w.t.Context(), "nvmf_delete_subsystem", p{"nqn": nqn}, nil)
			return fmt.Errorf("%s: %w", c.method, err)
		}
	}
	return nil
}

// copyData runs spdk_dd as a host of a subsystem. On a busy machine, spdk_dd may be unable to
// connect within its own timeout of several seconds. In that case, it has copied nothing, and is
// started again.
func (w *testbed) copyData(nqn string, args ...string) {
	w.t.Helper()
	config, err := json.Marshal(p{"subsystems": []p{{"subsystem": "bdev", "config": []p{
		{"method": "bdev_set_options", "params": p{"bdev_auto_examine": false}},
		{"method": "bdev_nvme_attach_controller", "params": p{"name": "N", "trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": w.port, "subnqn": nqn, "hostnqn": hostNQN}},
	}}}})
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(w.at("dd.json"), config, 0o600))
	args = append(append(ownCore(), "-r", w.at("dd.sock"), "--json", w.at("dd.json")), args...)
	for attempt := 0; ; attempt++ {
		out, err := exec.Command(filepath.Join(filepath.Dir(os.Getenv("SPDK_TGT")), "spdk_dd"), args...).CombinedOutput()
		if err != nil && attempt < 9 && bytes.Contains(out, []byte("RPC client command timeout")) {
			continue
		}
		require.NoError(w.t, err, "%s: %s", strings.Join(args, " "), out)
		return
	}
}

// write writes data to a volume, acting as a host that the volume's owner has admitted.
func (w *testbed) write(by spdkrpc.Caller, volume string, data []byte) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(w.at("data"), data, 0o600))
	nqn := volumeNQN + volume
	require.NoError(w.t, w.export(by, nqn, volume))
	w.copyData(nqn, "--if="+w.at("data"), "--ob=Nn1", "--bs=1048576")
	require.NoError(w.t, by.Call(w.t.Context(), "nvmf_delete_subsystem", p{"nqn": nqn}, nil))
}

// read returns the data that a host reads from the namespace of a new subsystem.
func (w *testbed) read(by spdkrpc.Caller, nqn, bdev string) []byte {
	w.t.Helper()
	require.NoError(w.t, w.export(by, nqn, bdev))
	w.copyData(nqn, "--ib=Nn1", "--of="+w.at("read"), "--bs=1048576")
	require.NoError(w.t, by.Call(w.t.Context(), "nvmf_delete_subsystem", p{"nqn": nqn}, nil))
	data, err := os.ReadFile(w.at("read"))
	require.NoError(w.t, err)
	return data
}
