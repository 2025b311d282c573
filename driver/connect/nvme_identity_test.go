package connect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A device belongs to the export only if it is the export's namespace, in the export's subsystem,
// on one of this host's controllers.
func TestNVMeIdentityIsVerified(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	k.controller(0, 0, "nqn.2026-11.io.x:other", k.host.NQN, "live", "127.0.0.1")
	k.namespace(0, 0, 1, "uuid."+uuid1, gib) // the same UUID on another subsystem
	k.controller(1, 1, nqn1, HostOf("another").NQN, "live", "127.0.0.1")
	k.namespace(1, 1, 1, "uuid."+uuid2, gib)
	_, err := c.Find(t.Context(), export1)
	require.ErrorIs(t, err, ErrNotConnected)
	require.NoError(t, c.Disconnect(t.Context(), export1), "controllers of other hosts stay")
	require.Empty(t, k.log())

	k.controller(2, 2, nqn1, k.host.NQN, "live", "127.0.0.1")
	k.namespace(2, 2, 1, "uuid."+uuid2, gib)
	want := k.namespace(2, 2, 2, "uuid."+uuid1, 2*gib)
	d, err := c.Find(t.Context(), export1)
	require.NoError(t, err)
	assert.Equal(t, Device{Path: k.root + "/dev/" + want, SizeBytes: 2 * gib, UUID: uuid1}, d)

	k.rdevs[want]++
	_, err = c.Find(t.Context(), export1)
	require.ErrorIs(t, err, ErrAmbiguous, "the node leads to another device")
	delete(k.rdevs, want)
	_, err = c.Find(t.Context(), export1)
	require.ErrorContains(t, err, "whether the host's /dev is mounted")
}

func TestNamespaceOfTheVolumeIsChosen(t *testing.T) {
	one := []namespace{{"nvme0n1", uuid1, "m"}}
	two := []namespace{{"nvme0n1", uuid1, "m"}, {"nvme0n2", uuid2, "m"}}
	for _, tt := range []struct {
		name   string
		export Export
		all    []namespace
		want   string
		kind   error
	}{
		{"by UUID", Export{NSUUID: uuid2}, two, "nvme0n2", nil},
		{"UUID missing", Export{NSUUID: uuid2}, one, "", ErrNoNamespace},
		{"UUID missing, legacy UUID matches", Export{NSUUID: uuid2, LegacyUUID: uuid1}, one, "", ErrNoNamespace},
		{"UUID missing, model matches", Export{NSUUID: uuid2}, []namespace{{"nvme0n1", uuid1, uuid2}}, "", ErrNoNamespace},
		{"none", Export{NSUUID: uuid1}, nil, "", ErrNoNamespace},
		{"legacy, by UUID", Export{LegacyUUID: uuid1}, two, "nvme0n1", nil},
		{"legacy, one namespace, model matches", Export{LegacyUUID: uuid1}, []namespace{{"nvme0n1", uuid2, uuid1}}, "nvme0n1", nil},
		{"legacy, one namespace, another model", Export{LegacyUUID: uuid1}, []namespace{{"nvme0n1", uuid2, "SPDK"}}, "", ErrNoNamespace},
		{"legacy, several namespaces", Export{LegacyUUID: "x"}, two, "", ErrNoNamespace},
		{"no UUID known, one namespace", Export{}, one, "nvme0n1", nil},
		{"no UUID known, several namespaces", Export{}, two, "", ErrAmbiguous},
		{"no UUID known, no namespace", Export{}, nil, "", ErrNoNamespace},
		{"two paths as two devices", Export{NSUUID: uuid1}, []namespace{{"nvme0n1", uuid1, ""}, {"nvme1n1", uuid1, ""}}, "", ErrAmbiguous},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := choose(tt.export, tt.all)
			assert.Equal(t, tt.want, got.name)
			require.ErrorIs(t, err, tt.kind)
		})
	}
}

// A namespace that the target has removed may still have a device of size 0.
func TestRemovedNamespaceIsNotUsed(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
	k.namespace(0, 0, 1, "uuid."+uuid1, 0)
	_, err := c.Find(t.Context(), export1)
	require.ErrorIs(t, err, ErrNoNamespace)
	require.ErrorContains(t, err, "size 0")
}

func TestNamespaceUUIDIsRead(t *testing.T) {
	k, c := newNVMeKernel(t, false)
	n := c.transports[TCP].(*nvme)
	k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
	for wwid, want := range map[string]string{
		"uuid." + strings.ToUpper(uuid1):            uuid1,
		"eui." + strings.ReplaceAll(uuid1, "-", ""): uuid1,
		"eui.0025385b71b0a3c1":                      "",
		"nvme.0000-53504b-5350444b-00000001":        "",
		"":                                          "",
	} {
		name := k.namespace(0, 0, 1, wwid, gib)
		assert.Equal(t, want, n.namespaceUUID(name), wwid)
	}
}
