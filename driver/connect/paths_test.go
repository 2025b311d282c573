package connect

import (
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var exportTwoPaths = Export{
	Transport: TCP, Address: "192.0.2.1", Port: "4420", NQN: nqn1, NSUUID: uuid1, More: []Address{{Addr: "fd00::2", Port: "4421"}},
}

// connects makes the kernel connect to all addresses except one.
func (k *nvmeKernel) connects(unreachable string) {
	k.exchange = func(options string) error {
		_, address, _ := strings.Cut(options, "traddr=")
		address, _, _ = strings.Cut(address, ",")
		if address == unreachable {
			return syscall.ECONNREFUSED
		}
		i := map[string]int{"192.0.2.1": 0, "fd00::2": 1}[address]
		subsystem := 0
		if !k.multipath {
			subsystem = i
		}
		k.controller(i, subsystem, nqn1, k.host.NQN, "live", address)
		k.file("sys/class/nvme/nvme"+strconv.Itoa(i)+"/address", "traddr="+address+",trsvcid="+strconv.Itoa(4420+i))
		if i == 0 || !k.multipath || unreachable != "" {
			k.namespace(i, subsystem, 1, "uuid."+uuid1, gib)
		}
		return nil
	}
}

func (k *nvmeKernel) connectedTo() (addresses []string) {
	for _, line := range k.log() {
		if _, rest, ok := strings.Cut(line, "traddr="); ok {
			address, _, _ := strings.Cut(rest, ",nqn")
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// A node with native multipath connects to all of the target's addresses. Other nodes connect only
// to the first address that works for them.
func TestNVMeConnectsToSeveralAddresses(t *testing.T) {
	both, first, second := []string{"192.0.2.1,trsvcid=4420", "fd00::2,trsvcid=4421"}, "192.0.2.1", "fd00::2"
	for _, tt := range []struct {
		name        string
		multipath   bool
		unreachable string
		tried       []string
		device      string
		again       []string // addresses that a repeated call tries
	}{
		{"all", true, "", both, "nvme0n1", nil},
		{"first address is down", true, first, both, "nvme0n1", both[:1]},
		{"second address is down", true, second, both, "nvme0n1", both[1:]},
		{"no multipath", false, "", both[:1], "nvme0n1", nil},
		{"no multipath, first address is down", false, first, both, "nvme1n1", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, c := newNVMeKernel(t, tt.multipath)
			if tt.multipath {
				k.file("sys/module/nvme_core/parameters/multipath", "Y\n")
			}
			k.connects(tt.unreachable)
			d, err := c.Connect(t.Context(), exportTwoPaths)
			require.NoError(t, err)
			assert.Equal(t, k.root+"/dev/"+tt.device, d.Path)
			assert.Equal(t, tt.tried, k.connectedTo())
			_, err = c.Connect(t.Context(), exportTwoPaths)
			require.NoError(t, err)
			assert.Equal(t, tt.again, k.connectedTo())
			require.NoError(t, c.Disconnect(t.Context(), exportTwoPaths))
			_, err = c.Find(t.Context(), exportTwoPaths)
			require.ErrorIs(t, err, ErrNotConnected)
		})
	}
}

func TestNVMeConnectFailsIfNoAddressWorks(t *testing.T) {
	for _, multipath := range []string{"Y", "N"} {
		k, c := newNVMeKernel(t, multipath == "Y")
		k.file("sys/module/nvme_core/parameters/multipath", multipath+"\n")
		k.exchange = func(string) error { return syscall.EHOSTUNREACH }
		_, err := c.Connect(t.Context(), exportTwoPaths)
		require.ErrorIs(t, err, ErrUnreachable)
		require.ErrorContains(t, err, "192.0.2.1:4420")
		require.ErrorContains(t, err, "[fd00::2]:4421")
	}
}

// iSCSI uses the first address that works, and leaves behind no records for the other addresses.
func TestISCSIUsesTheFirstWorkingAddress(t *testing.T) {
	k, c := newISCSIKernel(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := strconv.Itoa(closed.Addr().(*net.TCPAddr).Port)
	require.NoError(t, closed.Close())
	e := k.export
	e.More, e.Port = []Address{{Addr: e.Address, Port: e.Port}}, port
	_, err = c.Connect(soon(t, time.Minute), e)
	require.NoError(t, err)
	ran := strings.Join(k.commands(), "\n")
	assert.Contains(t, ran, "-p 127.0.0.1:"+k.export.Port+" -I spdkgate --login")
	assert.NotContains(t, ran, port)
	require.NoError(t, c.Disconnect(t.Context(), e))
	ran = strings.Join(k.commands(), "\n")
	for _, p := range []string{port, k.export.Port} {
		assert.Contains(t, ran, "-p 127.0.0.1:"+p+" -I spdkgate --logout")
		assert.Contains(t, ran, "-p 127.0.0.1:"+p+" -I spdkgate -o delete")
	}
	e.More[0].Port = port
	_, err = c.Connect(soon(t, time.Minute), e)
	require.ErrorIs(t, err, ErrUnreachable)
}

// A node uses the addresses that match its labels and the addresses without labels.
func TestNodeAddressesAreChosenByLabels(t *testing.T) {
	all := []Address{
		{Addr: "192.0.2.1", Port: "4420", Topology: map[string]string{"zone": "a"}},
		{Addr: "fd00::1", Port: "4420", Topology: map[string]string{"zone": "b"}},
		{Addr: "storage.example", Port: "9"},
	}
	context := map[string]string{
		"targetType": "tcp", "targetAddr": "192.0.2.1", "targetPort": "4420", "nqn": nqn1, "nsUUID": uuid1, "targetAddrs": FormatAddresses(all),
	}
	for zone, want := range map[string][]string{"a": {"192.0.2.1", "storage.example"}, "b": {"fd00::1", "storage.example"}, "c": {"storage.example"}} {
		e, err := ParseExport(context, map[string]string{"zone": zone, "rack": "7"})
		require.NoError(t, err)
		var got []string
		for _, p := range e.paths() {
			got = append(got, p.Address)
			assert.Empty(t, p.More)
		}
		assert.Equal(t, want, got)
	}
	context["targetAddrs"] = FormatAddresses(all[:2])
	_, err := ParseExport(context, map[string]string{"zone": "c"})
	require.ErrorIs(t, err, ErrInvalidExport)
	require.ErrorContains(t, err, "--topology")
	for _, bad := range []string{"192.0.2.1", "[]", `[{"address": "192.0.2.1"}]`, `[{"address": "192.0.2.1,x=y", "port": "1"}]`, `[{"address": "fe80::1%x,hostnqn=y", "port": "1"}]`} {
		context["targetAddrs"] = bad
		_, err := ParseExport(context, nil)
		require.ErrorIs(t, err, ErrInvalidExport, bad)
	}
	assert.True(t, Export{}.IsZero())
	assert.False(t, exportTwoPaths.IsZero())
	assert.Equal(t, "tcp "+nqn1+" at 192.0.2.1:4420, [fd00::2]:4421", exportTwoPaths.String())
}
