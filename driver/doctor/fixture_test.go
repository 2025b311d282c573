package doctor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

const mib = 1 << 20

// A fixture is a target with the lvstores lvs0 and lvs1, of which the driver may use only lvs0. The
// target is simulated, or real if SPDK_SOCK is set.
type fixture struct {
	*volume.Service
	rpc    *spdkrpc.Client
	socket string
	sim    *spdktest.Target // nil for a real target
	files  map[string]string
	keys   string                   // directory that contains the keys
	info   *spdkrpc.ProxyTargetInfo // the proxy's description of the target
}

func newFixture(t *testing.T, tr export.Transport) *fixture {
	t.Helper()
	f := &fixture{keys: t.TempDir(), info: &spdkrpc.ProxyTargetInfo{ExaminesVolumes: new(false)}}
	if realtarget.Given() {
		f.socket = realtarget.Socket(t)
	} else {
		sim, err := spdktest.Start(spdktest.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, sim.Close()) })
		f.sim, f.socket = sim, sim.Socket()
	}
	socket := spdkrpc.NewSocket(f.socket)
	t.Cleanup(func() { assert.NoError(t, socket.Close()) })
	f.rpc = spdkrpc.NewClient(&drivertest.KeyPlacer{Caller: socket, Dir: f.keys, Info: func() *spdkrpc.ProxyTargetInfo { return f.info }})
	for _, store := range []string{"lvs0", "lvs1"} {
		f.attach(t, "disk-"+store)
		_, err := f.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk-" + store, LvsName: store})
		require.NoError(t, err)
	}
	f.Service = f.service(tr, "lvs0")
	return f
}

func (f *fixture) service(tr export.Transport, stores ...string) *volume.Service {
	port := map[export.Transport]string{export.TCP: "4427", export.ISCSI: "3267"}[tr]
	return volume.NewTarget(volume.Config{Config: export.Config{Name: "t0", Transport: tr, Listen: []export.Portal{{Addr: "127.0.0.1", Port: port}}}, Stores: stores}).Service(f.rpc)
}

func (f *fixture) create(t *testing.T, name string) volume.Volume {
	t.Helper()
	stores, err := f.Stores(t.Context())
	require.NoError(t, err)
	v, err := f.Create(t.Context(), stores[0], volume.Spec{Name: name, MinBytes: 8 * mib})
	require.NoError(t, err)
	return v
}

func (f *fixture) clone(t *testing.T, of volume.Volume, name string) volume.Volume {
	t.Helper()
	v, err := f.Clone(t.Context(), volume.Origin{UUID: of.UUID}, volume.Spec{Name: name, MinBytes: 8 * mib, Class: class.Class{Clear: class.ClearUnmap}}) // releases before v24.05 cannot zero clusters
	require.NoError(t, err)
	return v
}

func (f *fixture) publish(t *testing.T, v volume.Volume, node string) {
	t.Helper()
	_, err := f.Export(t.Context(), v.UUID, drivertest.MultipathHost(node))
	require.NoError(t, err)
}

// nest creates an lvstore on a bdev, as if a host had written it and the target had loaded it.
func (f *fixture) nest(t *testing.T, store, bdev string) {
	t.Helper()
	_, err := f.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: bdev, LvsName: store, ClusterSz: new(uint32(1 << 20))})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, f.rpc.BdevLvolDeleteLvstore(context.WithoutCancel(t.Context()), spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: &store}))
	})
}

// deleteLvol deletes an lvol without using the driver.
func (f *fixture) deleteLvol(t *testing.T, id string) {
	t.Helper()
	require.NoError(t, f.rpc.BdevLvolDelete(t.Context(), spdkrpc.BdevLvolDeleteParams{Name: id}))
}

// objects returns all objects on the target, by kind and name.
func (f *fixture) objects(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	put := func(key string, o any) {
		text, err := json.Marshal(o)
		require.NoError(t, err)
		all[key] = string(text)
	}
	lvols, err := f.rpc.BdevLvolGetLvols(t.Context(), spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	for _, l := range lvols {
		put("lvol "+l.Alias, l.UUID)
	}
	subs, err := f.rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{})
	require.NoError(t, err)
	for _, s := range subs {
		put(s.NQN, s)
	}
	nodes, err := f.rpc.ISCSIGetTargetNodes(t.Context())
	require.NoError(t, err)
	for _, n := range nodes {
		put(n.Name, n)
	}
	groups, err := f.rpc.ISCSIGetInitiatorGroups(t.Context())
	require.NoError(t, err)
	for _, g := range groups {
		put("group "+g.Initiators[0], g)
	}
	auth, err := f.rpc.ISCSIGetAuthGroups(t.Context())
	require.NoError(t, err)
	for _, g := range auth {
		put(fmt.Sprint("auth group ", g.Tag), g)
	}
	if keys, err := f.rpc.KeyringGetKeys(t.Context()); !errors.Is(err, spdkrpc.MethodNotFound) { // v24.01
		require.NoError(t, err)
		for _, k := range keys {
			put("key "+k.Name, k)
		}
	}
	portals, err := f.rpc.ISCSIGetPortalGroups(t.Context())
	require.NoError(t, err)
	for _, p := range portals {
		put("portal", p)
	}
	return all
}

func (f *fixture) examination() doctor.Examination { return examinationOf(f.Service) }

func examinationOf(services ...*volume.Service) doctor.Examination {
	e := doctor.Examination{Hosts: drivertest.MultipathHost, Timeout: time.Minute, Wait: func(context.Context) error { return nil }}
	for _, s := range services {
		e.Targets = append(e.Targets, doctor.Target{Service: s, URL: "https://storage-1:9009"})
	}
	return e
}

func run(t *testing.T, e doctor.Examination) []doctor.Finding {
	t.Helper()
	found, err := e.Run(t.Context())
	require.NoError(t, err)
	return found
}

// file returns the path of the file for the AIO bdev with this name. The same name always yields
// the same path.
func (f *fixture) file(t *testing.T, name string) string {
	t.Helper()
	if f.files == nil {
		f.files = map[string]string{}
	}
	if f.files[name] == "" {
		f.files[name] = filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(f.files[name], nil, 0o600))
		require.NoError(t, os.Truncate(f.files[name], 100*mib))
	}
	return f.files[name]
}

// attach creates the AIO bdev with this name. The bdev keeps its contents between attachments.
func (f *fixture) attach(t *testing.T, name string) {
	t.Helper()
	_, err := f.rpc.BdevAIOCreate(t.Context(), spdkrpc.BdevAIOCreateParams{Name: name, Filename: f.file(t, name), BlockSize: new(uint32(4096))})
	require.NoError(t, err)
}

// simulatedOnly skips a test on real targets, because the test needs several targets or kills its
// target.
func simulatedOnly(t *testing.T) {
	t.Helper()
	if realtarget.Given() {
		t.Skip("needs simulated targets: unset SPDK_SOCK")
	}
}
