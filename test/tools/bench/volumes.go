package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	volumesBase  = "spdkgate-bench-volumes-base"
	volumesStore = "spdkgate-bench-volumes"
)

// A cycle creates, exports, unexports and deletes one volume, and returns how long each step took.
type cycle func(ctx context.Context, name string) ([]time.Duration, error)

// volumeFigures holds the results of cycles.
type volumeFigures struct {
	perSecond []float64         // of each round
	latencies [][]time.Duration // of each step
	driver    []time.Duration   // spdk-csi's CPU time per cycle, in each round; none for the bare loop
	proxy     []time.Duration   // the same for spdk-proxy
	rpcs      []float64         // RPCs of spdk-csi per cycle, in each round
}

func same[T any](x T) T { return x }

// cpuPerVolume returns each process's CPU time per cycle, and the sum of both.
func (f *volumeFigures) cpuPerVolume() string {
	driver, proxy := medianOf(f.driver, same), medianOf(f.proxy, same)
	return fmt.Sprintf("spdk-csi %s ms, spdk-proxy %s ms, both %s ms", ms(driver), ms(proxy), ms(driver+proxy))
}

func (f *volumeFigures) rpcsPerVolume() float64 { return medianOf(f.rpcs, same) }

// measureVolumes runs cycles of volumes through CSI calls. For comparison, it runs a bare loop on
// the target's socket, which makes the same changes one after another and checks nothing.
func measureVolumes(ctx context.Context, p *proxy, path string, o options, inFlight int) (bare, byCSI volumeFigures, err error) {
	socket := spdkrpc.NewSocket(path)
	defer func() { err = errors.Join(err, socket.Close()) }()
	rpc := spdkrpc.NewClient(socket)
	clearVolumes(ctx, rpc)
	const mib = 64 // the volumes are thin and never written to
	if _, err := rpc.BdevMallocCreate(ctx, spdkrpc.BdevMallocCreateParams{Name: new(volumesBase), NumBlocks: mib << 8, BlockSize: 4096}); err != nil {
		return bare, byCSI, fmt.Errorf("create the bdev for volumes: %w", err)
	}
	defer clearVolumes(context.WithoutCancel(ctx), rpc)
	if _, err := rpc.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: volumesBase, LvsName: volumesStore, ClusterSz: new(uint32(65536))}); err != nil {
		return bare, byCSI, fmt.Errorf("create the lvstore for volumes: %w", err)
	}
	// Creating the transport fails if the target already has it.
	_ = rpc.NVMfCreateTransport(ctx, spdkrpc.NVMfCreateTransportParams{Trtype: "TCP"})

	address, err := freeAddress()
	if err != nil {
		return bare, byCSI, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return bare, byCSI, err
	}
	driver, err := startDriver(ctx, p, o.driver, host, port)
	if err != nil {
		return bare, byCSI, err
	}
	defer func() { err = errors.Join(err, driver.stop()) }()

	// A warm-up before the first round opens connections, and makes the programs prepare the parts
	// of the schema that they need.
	var warmUp volumeFigures
	if err := errors.Join(warmUp.run(ctx, "warm-up-bare", inFlight, inFlight, bareCycle(rpc, host, port)), warmUp.run(ctx, "warm-up-csi", inFlight, inFlight, driver.cycle)); err != nil {
		return bare, byCSI, fmt.Errorf("first volumes: %w", err)
	}
	for range o.rounds {
		if err := bare.run(ctx, "bare", o.volumes, inFlight, bareCycle(rpc, host, port)); err != nil {
			return bare, byCSI, fmt.Errorf("bare loop: %w", err)
		}
		atProxy, atDriver := p.cpu(), cpuTime(driver.cmd)
		logged, err := p.loggedCalls()
		if err != nil {
			return bare, byCSI, err
		}
		if err := byCSI.run(ctx, "csi", o.volumes, inFlight, driver.cycle); err != nil {
			return bare, byCSI, fmt.Errorf("CSI: %w", err)
		}
		byCSI.driver = append(byCSI.driver, (cpuTime(driver.cmd)-atDriver)/time.Duration(o.volumes))
		byCSI.proxy = append(byCSI.proxy, (p.cpu()-atProxy)/time.Duration(o.volumes))
		now, err := p.loggedCalls()
		if err != nil {
			return bare, byCSI, err
		}
		byCSI.rpcs = append(byCSI.rpcs, float64(now-logged)/float64(o.volumes))
	}
	return bare, byCSI, nil
}

func clearVolumes(ctx context.Context, rpc *spdkrpc.Client) {
	_ = rpc.BdevLvolDeleteLvstore(ctx, spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: new(volumesStore)})
	_ = rpc.BdevMallocDelete(ctx, spdkrpc.BdevMallocDeleteParams{Name: volumesBase})
}

// run runs count cycles, with at most inFlight of them at a time.
func (f *volumeFigures) run(ctx context.Context, prefix string, count, inFlight int, one cycle) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	var next atomic.Int64
	var mu sync.Mutex
	began := time.Now()
	for range inFlight {
		workers.Go(func() {
			for n := next.Add(1); n <= int64(count) && ctx.Err() == nil; n = next.Add(1) {
				took, err := one(ctx, fmt.Sprint(prefix, "-", len(f.perSecond), "-", n))
				if err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				for i, d := range took {
					if i == len(f.latencies) {
						f.latencies = append(f.latencies, nil)
					}
					f.latencies[i] = append(f.latencies[i], d)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	f.perSecond = append(f.perSecond, float64(count)/time.Since(began).Seconds())
	return nil
}

// rate returns the median of the rounds' rates.
func (f *volumeFigures) rate() float64 {
	return medianOf(f.perSecond, same)
}

// ratioOfRates returns the median of the rounds' ratios.
func ratioOfRates(f, beside volumeFigures) float64 {
	var ratios []float64
	for i := range f.perSecond {
		ratios = append(ratios, f.perSecond[i]/beside.perSecond[i])
	}
	return medianOf(ratios, same)
}

// p50 returns a step's median latency.
func (f *volumeFigures) p50(step int) time.Duration {
	return medianOf(f.latencies[step], same)
}

// bareCycle makes the changes of a volume's cycle without any checks. Its steps are the same as
// with CSI.
func bareCycle(rpc *spdkrpc.Client, host, port string) cycle {
	listen := spdkrpc.NVMfListenAddress{Trtype: "TCP", Adrfam: new("IPv4"), Traddr: host, Trsvcid: &port}
	return func(ctx context.Context, name string) ([]time.Duration, error) {
		var id string
		nqn := "nqn.2016-06.io.spdk:" + volumesStore + "-" + name
		return timed(
			func() (err error) {
				id, err = rpc.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{LvolName: name, LvsName: new(volumesStore), SizeInMiB: 1, ThinProvision: new(true)})
				return err
			},
			func() error {
				if err := rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: nqn, SerialNumber: new("BENCH"), MaxNamespaces: new(uint32(1))}); err != nil {
					return err
				}
				if _, err := rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{NQN: nqn, Namespace: spdkrpc.NVMfNamespaceParams{BdevName: id}}); err != nil {
					return err
				}
				if err := rpc.NVMfSubsystemAddHost(ctx, spdkrpc.NVMfSubsystemAddHostParams{NQN: nqn, Host: "nqn.2014-08.org.nvmexpress:uuid:" + uuid.NewString()}); err != nil {
					return err
				}
				return rpc.NVMfSubsystemAddListener(ctx, spdkrpc.NVMfSubsystemAddListenerParams{NQN: nqn, ListenAddress: listen})
			},
			func() error {
				return rpc.NVMfDeleteSubsystem(ctx, spdkrpc.NVMfDeleteSubsystemParams{NQN: nqn})
			},
			func() error {
				return rpc.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: id})
			})
	}
}

// cycle runs a volume's cycle through CSI calls.
func (d *driver) cycle(ctx context.Context, name string) ([]time.Duration, error) {
	capability := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
	node := "bench-node"
	var v *csi.Volume
	return timed(
		func() error {
			r, err := d.controller.CreateVolume(ctx, &csi.CreateVolumeRequest{
				Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20}, VolumeCapabilities: []*csi.VolumeCapability{capability}, Secrets: d.secrets,
			})
			v = r.GetVolume()
			return err
		},
		func() error {
			_, err := d.controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
				VolumeId: v.GetVolumeId(), NodeId: node, VolumeCapability: capability, VolumeContext: v.GetVolumeContext(), Secrets: d.secrets,
			})
			return err
		},
		func() error {
			_, err := d.controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: node, Secrets: d.secrets})
			return err
		},
		func() error {
			_, err := d.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId(), Secrets: d.secrets})
			return err
		})
}

// steps lists the steps that a cycle times.
var steps = []string{"create", "publish", "unpublish", "delete"}

func timed(steps ...func() error) (took []time.Duration, err error) {
	for _, do := range steps {
		began := time.Now()
		if err := do(); err != nil {
			return took, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
