package doctor_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const secretKey = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"

// A wrong describes a defect on a target and the finding that it must cause.
type wrong struct {
	name string
	over export.Transport // TCP if empty
	// make creates the defect. It returns parts of the names of the objects that the repair
	// removes, or nothing if the defect is only reported.
	make func(t *testing.T, f *fixture) (removed []string)
	kind doctor.Kind
	says string
}

var wrongs = []wrong{
	{name: "export of a deleted volume", kind: doctor.LeakedExport, says: "does not exist", make: func(t *testing.T, f *fixture) []string {
		v := f.create(t, "gone")
		f.publish(t, v, "n1")
		f.deleteLvol(t, v.UUID)
		return []string{export.NQN(v.UUID)}
	}},
	{name: "export of a deleted volume over iSCSI", over: export.ISCSI, kind: doctor.LeakedExport, says: "does not exist", make: func(t *testing.T, f *fixture) []string {
		v := f.create(t, "gone")
		f.publish(t, v, "n8")
		f.deleteLvol(t, v.UUID)
		return []string{export.IQN(v.UUID), drivertest.Host("n8").IQN}
	}},
	{name: "export without a host", kind: doctor.HalfMade, says: "no host is admitted", make: func(t *testing.T, f *fixture) []string {
		v := f.create(t, "half")
		require.NoError(t, f.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(v.UUID)}))
		return nil // not a defect: a publication may be about to complete the export
	}},
	{name: "export without a listener", kind: doctor.HalfMade, says: "lacks its namespace or listener", make: func(t *testing.T, f *fixture) []string {
		v := f.create(t, "half")
		require.NoError(t, f.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(v.UUID)}))
		require.NoError(t, f.rpc.NVMfSubsystemAddHost(t.Context(), spdkrpc.NVMfSubsystemAddHostParams{NQN: export.NQN(v.UUID), Host: drivertest.Host("n1").NQN}))
		return nil
	}},
	{name: "export to every host", kind: doctor.OpenExport, says: "every host", make: func(t *testing.T, f *fixture) []string {
		drivertest.LegacyExport(t, f.rpc, f.Config.Config, f.create(t, "legacy").UUID)
		return nil
	}},
	{name: "export of another bdev", kind: doctor.Broken, says: "disk-foreign", make: func(t *testing.T, f *fixture) []string {
		_, err := f.rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: new("disk-foreign"), NumBlocks: 1024, BlockSize: 4096})
		require.NoError(t, err)
		v := f.create(t, "taken")
		require.NoError(t, f.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(v.UUID)}))
		_, err = f.rpc.NVMfSubsystemAddNS(t.Context(), spdkrpc.NVMfSubsystemAddNSParams{NQN: export.NQN(v.UUID), Namespace: spdkrpc.NVMfNamespaceParams{BdevName: "disk-foreign"}})
		require.NoError(t, err)
		return nil
	}},
	{name: "internal snapshot without clones", kind: doctor.LeakedSnapshot, says: "its source volume is gone", make: func(t *testing.T, f *fixture) []string {
		v := f.create(t, "source")
		c := f.clone(t, v, "clone")
		f.deleteLvol(t, c.UUID)
		f.deleteLvol(t, v.UUID)
		return []string{"." + strings.ReplaceAll(v.UUID, "-", "")}
	}},
	{name: "internal snapshot with one clone", kind: doctor.LeakedSnapshot, says: "its source volume is gone", make: func(t *testing.T, f *fixture) []string {
		v := f.create(t, "source")
		f.clone(t, v, "clone")
		f.deleteLvol(t, v.UUID)
		return []string{"." + strings.ReplaceAll(v.UUID, "-", "")}
	}},
	{name: "helper clone", kind: doctor.HalfMade, says: "needed only while a clone was being created", make: func(t *testing.T, f *fixture) []string {
		if release, err := f.rpc.Release(t.Context()); err == nil && release.Before(rpcschema.MustRelease("v24.05")) {
			t.Skip("the driver creates no helper clones before v24.05")
		}
		snap, err := f.Snapshot(t.Context(), "s", f.create(t, "source").UUID)
		require.NoError(t, err)
		_, err = f.rpc.BdevLvolClone(t.Context(), spdkrpc.BdevLvolCloneParams{SnapshotName: snap.UUID, CloneName: "helper.abcdefghijklmnop"})
		require.NoError(t, err)
		return []string{"lvol lvs0/helper."}
	}},
	{name: "unused initiator group", over: export.ISCSI, kind: doctor.LeakedGroup, says: "no iSCSI target", make: func(t *testing.T, f *fixture) []string {
		require.NoError(t, f.rpc.ISCSICreateInitiatorGroup(t.Context(), spdkrpc.ISCSICreateInitiatorGroupParams{Tag: 2000, Initiators: []string{drivertest.Host("n9").IQN}, Netmasks: []string{"ANY"}}))
		return []string{drivertest.Host("n9").IQN}
	}},
	{name: "unused key", kind: doctor.LeakedKey, says: "no host authenticates with it", make: func(t *testing.T, f *fixture) []string {
		name := hostauth.NewSecret(secretKey).Name()
		err := f.rpc.SpdkgateKeyAdd(t.Context(), spdkrpc.SpdkgateKeyAddParams{Name: "csi-" + name, Secret: secretKey})
		if errors.Is(err, spdkrpc.MethodNotFound) {
			t.Skip("this release has no keys")
		}
		require.NoError(t, err)
		require.NoError(t, f.rpc.SpdkgateKeyAdd(t.Context(), spdkrpc.SpdkgateKeyAddParams{Name: "csi-admin", Secret: secretKey}))
		return []string{name}
	}},
	{name: "unused authentication group", over: export.ISCSI, kind: doctor.LeakedKey, says: "no host authenticates with it", make: func(t *testing.T, f *fixture) []string {
		for _, tag := range []int32{7, 1<<30 + 5} { // an administrator created the first group
			require.NoError(t, f.rpc.ISCSICreateAuthGroup(t.Context(), spdkrpc.ISCSICreateAuthGroupParams{Tag: tag, Secrets: []spdkrpc.ISCSIAuthSecret{{User: "u", Secret: "correct-horse-1"}, {User: "spdkgate volume x", Secret: "nobody-knows-it"}}}))
		}
		t.Cleanup(func() {
			assert.NoError(t, f.rpc.ISCSIDeleteAuthGroup(context.WithoutCancel(t.Context()), spdkrpc.ISCSIDeleteAuthGroupParams{Tag: 7}))
		})
		return []string{"auth group 1073741829"}
	}},
	{name: "leftover claim to a portal group", over: export.ISCSI, kind: doctor.HalfMade, says: "claims", make: func(t *testing.T, f *fixture) []string {
		require.NoError(t, f.rpc.ISCSICreateInitiatorGroup(t.Context(), spdkrpc.ISCSICreateInitiatorGroupParams{Tag: 999, Initiators: []string{"iqn.2026-11.io.spdkgate:portal-group:x"}, Netmasks: []string{"ANY"}}))
		return nil
	}},
	{name: "two volumes, one with the name after use", kind: doctor.Duplicate, says: "lvs0/twice.used", make: func(t *testing.T, f *fixture) []string {
		f.create(t, "twice")
		_, err := f.rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "twice.used", LvsName: new("lvs0"), SizeInMiB: 4})
		require.NoError(t, err)
		return nil
	}},
	{name: "two snapshots with one requested name", kind: doctor.Duplicate, says: "more than once", make: func(t *testing.T, f *fixture) []string {
		v := f.create(t, "source")
		snap, err := f.Snapshot(t.Context(), "s", v.UUID)
		require.NoError(t, err)
		second := snap.Name[:len(snap.Name)-8] + "00000001"
		_, err = f.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.UUID, SnapshotName: second})
		require.NoError(t, err)
		return nil
	}},
	{name: "group snapshot with a missing member", kind: doctor.HalfMade, says: "only 1 of its 2 snapshots exist", make: func(t *testing.T, f *fixture) []string {
		v := f.create(t, "source")
		_, err := f.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.UUID, SnapshotName: "snap.abcdefghijkl." + strings.ReplaceAll(v.UUID, "-", "") + ".00000001xyzb"})
		require.NoError(t, err)
		return nil
	}},
	{name: "volume without a bdev", kind: doctor.Broken, says: "could not create its bdev", make: func(t *testing.T, f *fixture) []string {
		ctx := t.Context()
		f.attach(t, "external")
		infos, err := f.rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: new("external")})
		require.NoError(t, err)
		f.attach(t, "disk-lvs2")
		_, err = f.rpc.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk-lvs2", LvsName: "lvs2"})
		require.NoError(t, err)
		_, err = f.rpc.BdevLvolCloneBdev(ctx, spdkrpc.BdevLvolCloneBdevParams{Bdev: infos[0].UUID, LvsName: "lvs2", CloneName: "degraded"})
		require.NoError(t, err)
		for _, name := range []string{"disk-lvs2", "external"} {
			require.NoError(t, f.rpc.BdevAIODelete(ctx, spdkrpc.BdevAIODeleteParams{Name: name}))
		}
		f.attach(t, "disk-lvs2")
		require.NoError(t, f.rpc.BdevWaitForExamine(ctx))
		f.Service = f.service(export.TCP, "lvs0", "lvs2")
		return nil
	}},
	{name: "lvstore on a logical volume", kind: doctor.Nested, says: "lvstore lvs9 (", make: func(t *testing.T, f *fixture) []string {
		f.nest(t, "lvs9", f.create(t, "tenant").UUID)
		_, err := f.rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "pvc-victim", LvsName: new("lvs9"), SizeInMiB: 1, ThinProvision: new(true)})
		require.NoError(t, err)
		f.Service = f.service(export.TCP) // the driver may use all lvstores
		return nil
	}},
	{name: "RAID on a logical volume", kind: doctor.Nested, says: "RAID raid9", make: func(t *testing.T, f *fixture) []string {
		v := f.create(t, "tenant")
		err := f.rpc.BdevRAIDCreate(t.Context(), spdkrpc.BdevRAIDCreateParams{Name: "raid9", RAIDLevel: "concat", StripSizeKB: new(uint32(64)), BaseBdevs: []string{v.UUID}})
		if errors.Is(err, spdkrpc.MethodNotFound) {
			t.Skip("needs a real target: the simulated one has no RAIDs")
		}
		require.NoError(t, err)
		t.Cleanup(func() {
			assert.NoError(t, f.rpc.BdevRAIDDelete(context.WithoutCancel(t.Context()), spdkrpc.BdevRAIDDeleteParams{Name: "raid9"}))
		})
		return nil
	}},
	{name: "target that examines volumes", kind: doctor.Loads, says: "bdev_auto_examine is on", make: func(_ *testing.T, f *fixture) []string {
		f.info = &spdkrpc.ProxyTargetInfo{ExaminesVolumes: new(true)}
		return nil
	}},
	{name: "proxy without information on examination", kind: doctor.Loads, says: "it is unknown whether", make: func(_ *testing.T, f *fixture) []string {
		f.info = &spdkrpc.ProxyTargetInfo{}
		return nil
	}},
	{name: "proxy too old to report examination", kind: doctor.Loads, says: "upgrade spdk-proxy", make: func(_ *testing.T, f *fixture) []string {
		f.info = nil
		return nil
	}},
	{name: "volume dropped by SPDK", kind: doctor.Dropped, says: "lvstore lvs0", make: func(t *testing.T, f *fixture) []string {
		simulatedOnly(t)
		v := f.create(t, "busy")
		require.NoError(t, f.rpc.BdevLvolInflate(t.Context(), spdkrpc.BdevLvolInflateParams{Name: v.UUID}))
		f.sim.MakeBusy(v.UUID)
		require.Error(t, f.rpc.BdevLvolDelete(t.Context(), spdkrpc.BdevLvolDeleteParams{Name: v.UUID}))
		return nil
	}},
	{name: "unloaded lvstore", kind: doctor.StoreMissing, says: "lvs9", make: func(t *testing.T, f *fixture) []string {
		f.Service = f.service(export.TCP, "lvs0", "lvs9")
		return nil
	}},
}

// healthy creates an object of each kind that the driver creates, and some objects that belong to
// others.
func (f *fixture) healthy(t *testing.T) {
	ctx := t.Context()
	v := f.create(t, "pvc-1")
	inUse := f.clone(t, v, "clone-in-use")
	f.clone(t, v, "twin")
	f.publish(t, v, "n1")
	f.publish(t, inUse, "n2")
	w := f.create(t, "pvc-2")
	snap, err := f.Snapshot(ctx, "snap-1", w.UUID)
	require.NoError(t, err)
	_, err = f.Clone(ctx, volume.Origin{UUID: snap.UUID, Snapshot: true}, volume.Spec{Name: "restored", MinBytes: 8 * mib, Class: class.Class{Clear: class.ClearUnmap}})
	require.NoError(t, err)
	deleted := f.create(t, "pvc-3") // leaves an internal snapshot that an existing volume needs
	f.publish(t, f.clone(t, deleted, "heir"), "n3")
	require.NoError(t, f.Delete(ctx, deleted.UUID))
	_, err = f.rpc.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{LvolName: "of-others", LvsName: new("lvs1"), SizeInMiB: 4})
	require.NoError(t, err)
	require.NoError(t, f.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: "nqn.2016-06.io.spdk:others"}))
	require.NoError(t, f.rpc.ISCSICreateInitiatorGroup(ctx, spdkrpc.ISCSICreateInitiatorGroupParams{Tag: 1, Initiators: []string{"iqn.2016-06.example:others"}, Netmasks: []string{"ANY"}}))
}

// Doctor reports exactly the defects that exist. A check changes nothing, and a repair removes only
// the defect.
func TestDoctorFindsAndRepairsEachDefect(t *testing.T) {
	for _, w := range wrongs {
		t.Run(w.name, func(t *testing.T) {
			over := export.TCP
			if w.over != "" {
				over = w.over
			}
			f := newFixture(t, over)
			f.healthy(t)
			require.Empty(t, run(t, f.examination()), "nothing is wrong yet")

			removed := w.make(t, f)
			before := f.objects(t)
			found := run(t, f.examination())
			assert.Equal(t, before, f.objects(t))
			require.NotEmpty(t, found)
			for _, x := range found {
				if w.kind != doctor.LeakedExport || x.Kind != doctor.LeakedGroup {
					assert.Equal(t, w.kind, x.Kind, x.Object)
					assert.Contains(t, x.Object+x.Problem, w.says)
				}
				assert.Equal(t, "t0", x.Target)
				assert.NotEmpty(t, x.Command)
				assert.Equal(t, len(removed) > 0, x.Repair != "", x.Repair)
			}
			require.Len(t, found, 1)
			if len(removed) == 0 {
				return
			}
			require.NoError(t, found[0].Apply(t.Context()))
			maps.DeleteFunc(before, func(name, _ string) bool {
				return slices.ContainsFunc(removed, func(part string) bool { return strings.Contains(name, part) })
			})
			assert.Equal(t, before, f.objects(t))
			assert.Empty(t, run(t, f.examination()))
		})
	}
}

// Doctor reports an unresponsive target as a finding, and still reads the other targets.
func TestUnreachableTargetIsReported(t *testing.T) {
	simulatedOnly(t)
	up, down := newFixture(t, export.TCP), newFixture(t, export.TCP)
	require.NoError(t, up.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(uuid.NewString())}))
	require.NoError(t, down.sim.Close())
	found := run(t, examinationOf(up.Service, down.Service))
	require.Len(t, found, 2)
	assert.Equal(t, doctor.Unreachable, found[0].Kind)
	assert.Equal(t, doctor.LeakedExport, found[1].Kind)
}

// If the configuration names no lvstores, doctor does not remove an export, because it may belong
// to a volume in an lvstore that is not loaded.
func TestExportIsNotRemovedIfNoLvstoresAreConfigured(t *testing.T) {
	f := newFixture(t, export.TCP)
	require.NoError(t, f.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(uuid.NewString())}))
	found := run(t, examinationOf(f.service(export.TCP)))
	require.Len(t, found, 1)
	assert.Empty(t, found[0].Repair)
	assert.Contains(t, found[0].Problem, "add lvstores")
}

// Doctor reports an export with connected hosts, but does not remove it.
func TestConnectedExportIsNotRemoved(t *testing.T) {
	f := newFixture(t, export.TCP)
	gone := uuid.NewString()
	require.NoError(t, f.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(gone)}))
	found := run(t, f.examination())
	require.Len(t, found, 1)
	connected := volume.NewTarget(f.Config).Service(spdkrpc.NewClient(&drivertest.KeyPlacer{Caller: drivertest.Connected{Caller: spdkrpc.NewSocket(f.socket), Hosts: []string{"nqn.host"}}, Info: func() *spdkrpc.ProxyTargetInfo { return f.info }}))
	found = run(t, examinationOf(connected))
	require.Len(t, found, 1)
	assert.Empty(t, found[0].Repair)
	assert.Contains(t, found[0].Problem, "nqn.host")
}

// Doctor does not repair an object that has changed since the finding. In this test, the clone of
// the internal snapshot gets a host. An export without a host is never deleted, because a
// concurrent publication could admit a host and would then lose its export.
func TestChangedObjectsAreNotRepaired(t *testing.T) {
	f := newFixture(t, export.TCP)
	v := f.create(t, "half")
	require.NoError(t, f.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(v.UUID)}))
	source := f.create(t, "source")
	c := f.clone(t, source, "clone")
	f.deleteLvol(t, source.UUID)
	found := run(t, f.examination())
	require.Len(t, found, 2)
	f.publish(t, v, "n1")
	f.publish(t, c, "n2")
	before := f.objects(t)
	require.Equal(t, doctor.HalfMade, found[1].Kind)
	require.Empty(t, found[1].Repair)
	require.ErrorIs(t, found[0].Apply(t.Context()), volume.ErrInUse, found[0].Object)
	assert.Equal(t, before, f.objects(t))
}

// Doctor does not report the temporary objects of a running call. Either they no longer exist when
// doctor reads the target again, or the call holds their lock.
func TestObjectsOfRunningCallsAreNotReported(t *testing.T) {
	f := newFixture(t, export.TCP)
	v := f.create(t, "half")
	require.NoError(t, f.rpc.NVMfCreateSubsystem(t.Context(), spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(v.UUID)}))
	e := f.examination()
	e.Held = func() []string { return []string{v.UUID} }
	assert.Empty(t, run(t, e))
	e.Held = nil
	e.Wait = nil
	once := run(t, e)
	require.Len(t, once, 1)
	assert.Empty(t, once[0].Repair, "one reading proves nothing")
	e.Wait = func(context.Context) error {
		f.publish(t, v, "n1")
		return nil
	}
	assert.Empty(t, run(t, e))
}
