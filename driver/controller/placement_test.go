package controller

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func someSimTargets(t *testing.T, n int) (targets []*simTarget) {
	t.Helper()
	for i := range n {
		targets = append(targets, newSimTarget(t, fmt.Sprintf("t%d", i), "lvs0"))
	}
	return targets
}

// replace replaces a target's proxy with a handler, or stops the proxy if the handler is nil. undo
// restarts the proxy.
func (s *simTarget) replace(t *testing.T, by http.Handler) (undo func()) {
	t.Helper()
	address, proxy := s.gateway.Listener.Addr().String(), s.gateway.Config.Handler
	serve := func(h http.Handler) {
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		s.gateway = httptest.NewUnstartedServer(h)
		require.NoError(t, s.gateway.Listener.Close())
		s.gateway.Listener = l
		s.gateway.Start()
	}
	s.gateway.CloseClientConnections()
	s.gateway.Close()
	if by != nil {
		serve(by)
	}
	return func() {
		s.gateway.CloseClientConnections()
		s.gateway.Close()
		serve(proxy)
	}
}

// While one target is down and another hangs, CreateVolume succeeds if the targets that the
// volume's name selects are working. Calls for other names fail by their deadline, report the
// unresponsive target, and create nothing on other targets.
func TestCreateSucceedsWhileOtherTargetsAreDown(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	targets := someSimTargets(t, 5)
	// The target timeout is long enough for working targets, even on a busy machine. Calls that
	// need the hanging target end only after the timeout.
	b := newTestControllerOf(t, config.Config{Placement: config.Placement{TargetTimeout: "25s"}}, targets...)
	first := b.create(t, "before", 4*mib) // so that each target is already connected
	require.NoError(t, b.delete(t.Context(), first.GetVolumeId()))

	undoDown := targets[1].replace(t, nil)
	hanging := make(chan struct{})
	undoHanging := targets[3].replace(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hanging:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}))
	const names = 40
	ids := make([]string, names)
	var late atomic.Int32
	var wg sync.WaitGroup
	for i := range names {
		wg.Go(func() {
			name := fmt.Sprintf("pvc-%d", i)
			needed := map[string]bool{}
			asked, _ := placement.DefaultChoice.Of(b.Controller.targets.placement, name)
			for _, a := range asked {
				needed[a.Name] = true
			}
			req := b.request(name, 4*mib)
			if i%2 == 1 { // raw block volumes need an additional response from the target
				req.VolumeCapabilities = []*csi.VolumeCapability{drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, true)}
			}
			made, err := b.CreateVolume(t.Context(), req)
			switch {
			case !needed["t1"] && !needed["t3"]:
				assert.NoError(t, err)
				ids[i] = made.GetVolume().GetVolumeId()
			default: // after a closed connection the outcome of the call is unknown
				assert.Contains(t, []codes.Code{codes.Unavailable, codes.Aborted}, driver.Code(err), "%v", err)
				assert.Regexp(t, "target t[13]: ", err)
				if strings.Contains(err.Error(), "target t3: unreachable: the target did not list its lvstores and volumes within 25s: nothing was created") {
					late.Add(1)
				}
			}
		})
	}
	wg.Wait()
	close(hanging)
	undoDown()
	undoHanging()
	created := 0
	seen := map[string]bool{}
	for i, id := range ids {
		if id != "" {
			created++
		}
		got, err := drivertest.Retry(driver.Code, func() (*csi.CreateVolumeResponse, error) {
			return b.CreateVolume(t.Context(), b.request(fmt.Sprintf("pvc-%d", i), 4*mib))
		})
		require.NoError(t, err)
		if id != "" {
			assert.Equal(t, id, got.GetVolume().GetVolumeId())
		}
		seen[got.GetVolume().GetVolumeId()] = true
	}
	assert.Positive(t, created)
	assert.Positive(t, late.Load())
	assert.Len(t, seen, names)
	total := 0
	for _, s := range targets {
		total += len(s.lvols(t))
	}
	assert.Equal(t, names, total, "each volume must be created once")
}

// With 100 targets, each operation makes no more calls than with five.
func TestNumberOfCallsIsIndependentOfTargets(t *testing.T) {
	calls := func(n int) (sum int) {
		targets := someSimTargets(t, n)
		b := newTestControllerOf(t, config.Config{}, targets...)
		for i := range 20 {
			v := b.create(t, fmt.Sprintf("pvc-%d", i), 4*mib)
			_, err := b.publish(t.Context(), v, nodeA)
			require.NoError(t, err)
			require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
			require.NoError(t, b.delete(t.Context(), v.GetVolumeId()))
		}
		for _, s := range targets {
			s.mu.Lock()
			sum += s.calls
			s.mu.Unlock()
		}
		return sum
	}
	// The first operation on a target makes a few additional calls, whose results are then cached.
	const cached = 6
	five, hundred := calls(5), calls(100)
	assert.LessOrEqual(t, hundred, five+60*cached, "each of the 20 volumes uses at most three new targets")
	assert.Less(t, hundred, 2*five)
}

// A retry finds the volume that an unfinished call has created, even if a target has been added in
// the meantime.
func TestVolumeIsFoundAfterATargetIsAdded(t *testing.T) {
	targets := someSimTargets(t, 4)
	before := newTestControllerOf(t, config.Config{}, targets[:3]...)
	ids := map[string]string{}
	for i := range 30 {
		name := fmt.Sprintf("pvc-%d", i)
		ids[name] = before.create(t, name, 4*mib).GetVolumeId()
	}
	after := newTestControllerOf(t, config.Config{}, targets...)
	for name, id := range ids {
		assert.Equal(t, id, after.create(t, name, 4*mib).GetVolumeId())
	}
	for i := range 30 {
		after.create(t, fmt.Sprintf("later-%d", i), 4*mib)
	}
	assert.NotEmpty(t, targets[3].lvols(t), "the added target has no volumes")
}

func inZone(zone string) map[string]string {
	return map[string]string{"topology.kubernetes.io/zone": zone}
}

func zones(names ...string) (topologies []*csi.Topology) {
	for _, z := range names {
		topologies = append(topologies, &csi.Topology{Segments: inZone(z)})
	}
	return topologies
}

func TestVolumesFollowTheTopology(t *testing.T) {
	targets := someSimTargets(t, 3)
	b := newTestControllerOf(t, config.Config{Nodes: []config.Target{{Topology: inZone("a")}, {Topology: inZone("b")}, {Topology: inZone("c"), Labels: map[string]string{"disk": "nvme"}}}}, targets...)
	b.withCredentials(t)
	assert.True(t, b.HasTopology())
	create := func(name string, parameters map[string]string, r *csi.TopologyRequirement) (*csi.Volume, error) {
		req := b.request(name, 4*mib)
		req.AccessibilityRequirements, req.Parameters = r, parameters
		resp, err := b.CreateVolume(t.Context(), req)
		return resp.GetVolume(), err
	}
	for i, preferred := range []string{"a", "b", "c"} {
		v, err := create("pvc-"+preferred, nil, &csi.TopologyRequirement{Requisite: zones("a", "b", "c"), Preferred: zones(preferred, "a", "b", "c")})
		require.NoError(t, err)
		require.Len(t, v.GetAccessibleTopology(), 1)
		assert.Equal(t, inZone(preferred), v.GetAccessibleTopology()[0].GetSegments())
		assert.Len(t, targets[i].lvols(t), 1)
	}
	v, err := create("labelled", map[string]string{"targetLabels": "disk=nvme"}, nil)
	require.NoError(t, err)
	assert.Equal(t, inZone("c"), v.GetAccessibleTopology()[0].GetSegments())
	again, err := create("labelled", map[string]string{"targetLabels": "disk=nvme"}, &csi.TopologyRequirement{Requisite: zones("b", "c"), Preferred: zones("b", "c")})
	require.NoError(t, err)
	assert.Equal(t, v.GetVolumeId(), again.GetVolumeId())

	_, err = create("nowhere", nil, &csi.TopologyRequirement{Requisite: zones("z")})
	drivertest.RequireCode(t, codes.ResourceExhausted, driver.Status(err), "topology.kubernetes.io/zone=z")
	_, err = create("nowhere", map[string]string{"targetLabels": "disk=nvme"}, &csi.TopologyRequirement{Requisite: zones("a")})
	drivertest.RequireCode(t, codes.ResourceExhausted, driver.Status(err))
	_, err = create("nowhere", nil, &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"not a key": "x"}}}})
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "not a key")

	// A copy is created on the target of its source.
	copyOf := func(name string, r *csi.TopologyRequirement) (*csi.Volume, error) {
		req := b.request(name, 4*mib)
		req.AccessibilityRequirements = r
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.GetVolumeId()}}}
		resp, err := b.CreateVolume(t.Context(), req)
		return resp.GetVolume(), err
	}
	clone, err := copyOf("clone", &csi.TopologyRequirement{Requisite: zones("a", "c"), Preferred: zones("a", "c")})
	require.NoError(t, err)
	assert.Equal(t, inZone("c"), clone.GetAccessibleTopology()[0].GetSegments())
	_, err = copyOf("clone-2", &csi.TopologyRequirement{Requisite: zones("a")})
	drivertest.RequireCode(t, codes.ResourceExhausted, driver.Status(err), "a copy is created on the same target")

	// Capacity is reported for each topology, and includes only targets that respond.
	capacity := func(z string) int64 {
		req := &csi.GetCapacityRequest{}
		if z != "" {
			req.AccessibleTopology = zones(z)[0]
		}
		resp, err := b.GetCapacity(t.Context(), req)
		require.NoError(t, err)
		return resp.GetAvailableCapacity()
	}
	assert.Positive(t, capacity("a"))
	assert.Equal(t, capacity("a")+capacity("b")+capacity("c"), capacity(""))
	assert.Zero(t, capacity("z"))
	targets[0].replace(t, nil)
	assert.Equal(t, capacity("b")+capacity("c"), capacity(""))
	assert.Contains(t, b.logs.String(), "a target did not respond: its capacity is not counted")
	_, err = b.GetCapacity(t.Context(), &csi.GetCapacityRequest{AccessibleTopology: zones("a")[0]})
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err))
}

func TestPlacementFollowsTheStrategy(t *testing.T) {
	small, large := newSimTargetOf(t, "small", 100, "lvs0"), newSimTargetOf(t, "large", 400, "lvs0")
	b := newTestControllerOf(t, config.Config{}, small, large)
	for strategy, where := range map[string]*simTarget{"most-free": large, "binpack": small} {
		before := len(where.lvols(t))
		for i := range 4 {
			req := b.request(fmt.Sprintf("%s-%d", strategy, i), 4*mib)
			req.Parameters = map[string]string{"placement": strategy}
			_, err := b.CreateVolume(t.Context(), req)
			require.NoError(t, err)
		}
		assert.Len(t, where.lvols(t), before+4, strategy)
	}
}

// The total size of thin volumes never exceeds the configured limit, regardless of how many calls
// run in parallel.
func TestThinOvercommitIsNeverExceeded(t *testing.T) {
	for ratio, want := range map[float64]int{1: 19, 2: 39} {
		t.Run(fmt.Sprint(ratio), func(t *testing.T) {
			b := newTestControllerOf(t, config.Config{Placement: config.Placement{ThinOvercommit: ratio}}, newSimTarget(t, "t0", "lvs0"))
			var mu sync.Mutex
			var made []*csi.Volume
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					resp, err := b.CreateVolume(t.Context(), b.request(fmt.Sprintf("pvc-%d", i), 20*mib))
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						made = append(made, resp.GetVolume())
						return
					}
					assert.Equal(t, codes.ResourceExhausted, driver.Code(err))
					assert.ErrorContains(t, err, "thinOvercommit")
				})
			}
			wg.Wait()
			require.Len(t, made, want, "volumes of 20 MiB in an lvstore of 396 MiB")
			expand := func(size int64) error {
				_, err := b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: made[0].GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: size}, Secrets: b.secrets})
				return err
			}
			drivertest.RequireCode(t, codes.ResourceExhausted, driver.Status(expand(60*mib)), "thinOvercommit")
			clone := b.request("clone", 20*mib)
			clone.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: made[0].GetVolumeId()}}}
			_, err := b.CreateVolume(t.Context(), clone)
			drivertest.RequireCode(t, codes.ResourceExhausted, driver.Status(err), "thinOvercommit")
			require.NoError(t, b.delete(t.Context(), made[1].GetVolumeId()))
			_, err = b.CreateVolume(t.Context(), clone)
			require.NoError(t, err, "a deleted volume must not count")
			require.NoError(t, b.delete(t.Context(), made[2].GetVolumeId()))
			require.NoError(t, expand(40*mib))
			drivertest.RequireCode(t, codes.ResourceExhausted, driver.Status(expand(60*mib)))
		})
	}
}

// After a start, the controller creates no volumes until it knows the sizes of the existing
// volumes.
func TestFirstVolumeWaitsForSizesAfterARestart(t *testing.T) {
	for range 5 { // without the wait, the first response depends on how fast the sizes are read
		target := newSimTarget(t, "t0", "lvs0")
		cfg := config.Config{Placement: config.Placement{ThinOvercommit: 1}}
		before := newTestControllerOf(t, cfg, target)
		before.create(t, "pvc-1", 300*mib)
		after := newTestControllerOf(t, cfg, target)
		_, err := after.CreateVolume(t.Context(), after.request("pvc-2", 300*mib))
		drivertest.RequireCode(t, codes.ResourceExhausted, driver.Status(err), "thinOvercommit")
	}
}

// The controller rereads all sizes before it refuses a volume, so that volumes deleted by another
// client no longer count.
func TestSizesAreRereadBeforeAVolumeIsRefused(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestControllerOf(t, config.Config{}, target)
	v := b.create(t, "pvc-1", 300*mib)
	_, err := b.CreateVolume(t.Context(), b.request("pvc-2", 300*mib))
	drivertest.RequireCode(t, codes.ResourceExhausted, driver.Status(err))
	require.NoError(t, target.rpc.BdevLvolDelete(t.Context(), spdkrpc.BdevLvolDeleteParams{Name: v.GetVolumeId()[len("t0:"):]}))
	other := newTestControllerOf(t, config.Config{}, target) // this controller has not read the sizes yet
	other.create(t, "pvc-2", 300*mib)
}

func TestPlacementKeepsTheReserve(t *testing.T) {
	b := newTestControllerOf(t, config.Config{Placement: config.Placement{ReservePercent: new(50.0)}}, newSimTarget(t, "t0", "lvs0"))
	thick := func(name string, size int64) error {
		req := b.request(name, size)
		req.Parameters = map[string]string{"thin": "false"}
		_, err := b.CreateVolume(t.Context(), req)
		return err
	}
	drivertest.RequireCode(t, codes.ResourceExhausted, driver.Status(thick("pvc-1", 240*mib)), "reserve")
	require.NoError(t, thick("pvc-1", 196*mib))
	drivertest.RequireCode(t, codes.ResourceExhausted, driver.Status(thick("pvc-2", 20*mib)), "reserve")
	b.create(t, "thin", 20*mib)
}
