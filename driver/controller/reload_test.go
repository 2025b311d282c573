package controller

import (
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A reloadingController is a controller with a configuration that tests can change.
type reloadingController struct {
	*Reloading
	config *config.Config
	broken error
	logs   *drivertest.Log
}

func newReloadingController(t *testing.T, cfg *config.Config) *reloadingController {
	t.Helper()
	r := &reloadingController{config: cfg, logs: &drivertest.Log{}}
	var err error
	r.Reloading, err = NewReloading(func() (*config.Config, error) { c := *r.config; return &c, r.broken }, "", nil, r.logs.Logger())
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

func configOf(placement config.Placement, targets ...*simTarget) *config.Config {
	c := &config.Config{Placement: placement}
	for _, s := range targets {
		c.Nodes = append(c.Nodes, config.Target{
			Name: s.name, RPCURL: s.gateway.URL, TargetType: config.TargetNVMeTCP, TargetAddr: "127.0.0.1", TargetPort: "4420", ListenAddr: "127.0.0.1", ListenPort: "4420",
		})
	}
	return c
}

func (r *reloadingController) create(t *testing.T, name string, targets ...string) (*csi.Volume, error) {
	t.Helper()
	resp, err := r.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 4 * mib}, VolumeCapabilities: []*csi.VolumeCapability{writer}, Secrets: secretsFor(targets...),
	})
	return resp.GetVolume(), err
}

// Volumes can be created on a newly added target without a restart, and the connections to the
// other targets are kept.
func TestReloadAddsTargets(t *testing.T) {
	first, second := newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0")
	r := newReloadingController(t, configOf(config.Placement{}, first))
	_, err := r.create(t, "pvc-1", "t0")
	require.NoError(t, err)
	before := r.current.Load().targets
	require.NoError(t, r.Reload())
	require.Same(t, before, r.current.Load().targets, "nothing changed")

	r.config = configOf(config.Placement{}, first, second)
	require.NoError(t, r.Reload())
	assert.Contains(t, r.logs.String(), "configuration reloaded")
	after := r.current.Load().targets
	require.Len(t, before.clients, 1)
	for key, c := range before.clients {
		assert.Same(t, c, after.clients[key])
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		_, err := r.create(t, name, "t0", "t1")
		require.NoError(t, err)
	}
	assert.NotEmpty(t, second.lvols(t))

	r.config = configOf(config.Placement{}, second)
	require.NoError(t, r.Reload())
	v, err := r.create(t, "pvc-2", "t1")
	require.NoError(t, err)
	assert.Equal(t, "t1:", v.GetVolumeId()[:3])
	_, err = r.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "t0:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d", Secrets: secretsFor("t1")})
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), `"t0"`)
}

// After an invalid change, the previous configuration remains in force, and the error is logged
// once.
func TestInvalidReloadKeepsTheConfiguration(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	r := newReloadingController(t, configOf(config.Placement{}, target))
	before := r.current.Load()
	for range 3 {
		_, r.broken = config.Parse([]byte(`{"nodes": []}`))
		require.ErrorIs(t, r.Reload(), r.broken)
	}
	require.Same(t, before, r.current.Load())
	assert.Equal(t, 1, strings.Count(r.logs.String(), "configuration not reloaded"))
	r.broken, r.config = nil, configOf(config.Placement{}, target)
	r.config.Nodes[0].CAFile = "/does/not/exist"
	require.ErrorContains(t, r.Reload(), "caFile")
	r.config.Nodes[0].CAFile, r.config.Nodes[0].Topology = "", inZone("a")
	require.ErrorContains(t, r.Reload(), "restart the controller")
	require.Same(t, before, r.current.Load())
	_, err := r.create(t, "pvc-1", "t0")
	require.NoError(t, err)
}

// Changes to a target take effect on reload, and lvstores seen before the reload are still
// expected.
func TestReloadRemembersLvstores(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0", "lvs1")
	r := newReloadingController(t, configOf(config.Placement{}, target))
	_, err := r.create(t, "pvc-1", "t0")
	require.NoError(t, err)
	r.config = configOf(config.Placement{ThinOvercommit: 0.005}, target) // not enough for a volume of 4 MiB
	require.NoError(t, r.Reload())
	_, err = r.create(t, "pvc-2", "t0")
	drivertest.RequireCode(t, codes.ResourceExhausted, driver.Status(err), "thinOvercommit")
	r.config = configOf(config.Placement{}, target)
	require.NoError(t, r.Reload()) // after this reload, no call sees both lvstores
	require.NoError(t, target.rpc.BdevMallocDelete(t.Context(), spdkrpc.BdevMallocDeleteParams{Name: "disk-lvs1"}))
	_, err = r.create(t, "pvc-1", "t0")
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err), "lvs1")

	// To declare lvs1 permanently removed, an operator lists the remaining lvstores.
	r.config = configOf(config.Placement{}, target)
	r.config.Nodes[0].Lvstores = []string{"lvs0"}
	require.NoError(t, r.Reload())
	_, err = r.create(t, "pvc-3", "t0")
	require.NoError(t, err)
}

func TestReloadsAndCallsRunConcurrently(t *testing.T) {
	first, second := newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0")
	r := newReloadingController(t, configOf(config.Placement{}, first, second))
	stop := make(chan struct{})
	var reloads, calls sync.WaitGroup
	reloads.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			r.config = configOf(config.Placement{ReservePercent: new(float64(i % 5))}, first, second)
			assert.NoError(t, r.Reload())
		}
	})
	for range 4 {
		calls.Go(func() {
			for range 5 {
				v, err := drivertest.Retry(driver.Code, func() (*csi.Volume, error) { return r.create(t, "pvc-1", "t0", "t1") })
				assert.NoError(t, err)
				assert.NotEmpty(t, v.GetVolumeId())
			}
		})
	}
	calls.Wait()
	close(stop)
	reloads.Wait()
	assert.Len(t, append(first.lvols(t), second.lvols(t)...), 1)
}

// Reloading forwards exactly the calls that Controller implements.
func TestReloadingForwardsEveryCall(t *testing.T) {
	// An empty service panics in the calls that it implements, and returns Unimplemented for all
	// other calls.
	implements := func(service any, method string) (implemented bool) {
		defer func() { implemented = recover() != nil || implemented }()
		m := reflect.ValueOf(service).MethodByName(method)
		results := m.Call([]reflect.Value{reflect.ValueOf(t.Context()), reflect.Zero(m.Type().In(1))})
		err, _ := results[1].Interface().(error)
		return status.Code(err) != codes.Unimplemented
	}
	implemented := 0
	for _, server := range []reflect.Type{reflect.TypeFor[csi.ControllerServer](), reflect.TypeFor[csi.GroupControllerServer]()} {
		for i := range server.NumMethod() {
			name := server.Method(i).Name
			if implements(&Controller{}, name) {
				implemented++
			}
			assert.Equal(t, implements(&Controller{}, name), implements(&Reloading{}, name), name)
		}
	}
	assert.Greater(t, implemented, 20)
}

// Calls that stream their responses also use the current configuration.
func TestReloadingForwardsStreams(t *testing.T) {
	r := newReloadingController(t, configOf(config.Placement{}, newSimTarget(t, "t0", "lvs0")))
	for name, err := range map[string]error{
		"allocated": r.GetMetadataAllocated(&csi.GetMetadataAllocatedRequest{}, nil),
		"delta":     r.GetMetadataDelta(&csi.GetMetadataDeltaRequest{}, nil),
	} {
		require.ErrorIs(t, err, request.ErrInvalid, name)
	}
}
