package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

const accountDir = "/run/account"

// A replicatedVolume is a volume with two replicas on SPDK targets of the host. spdk-csi --node
// mirrors them.
type replicatedVolume struct {
	*mirroredVolume
	csi *csiVolume
	api *relay // the path to the API server

	stopWriting func() error

	reporting  sync.Mutex
	unreported map[string]uint64 // acknowledged writes, by block
}

// replicated is the scenario where, during writes to a volume with two replicas, its storage
// servers fail and return, and the node loses power.
func (s *scenario) replicated(phase string) (err error) {
	defer s.end(&err)
	if err := errors.Join(modprobe("virtio_blk", "loop", "ext4", "nvme-tcp", "dm_mirror", "dm_crypt"), mountDisk()); err != nil {
		return err
	}
	p, err := newPlugin("--replication", "--service-account-dir="+accountDir, "--replica-timeout=5s")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			fmt.Println("guest: the node plugin's log ends with:", p.lastLog())
		}
	}()
	v := s.newReplicatedVolume(p, "block", "")
	s.limit = 15 * time.Minute // the guest's clock is fast while the host is busy
	v.step("start the node plugin", func(ctx context.Context) (string, error) {
		return "", errors.Join(v.account(ctx), p.start(ctx, false))
	})
	switch phase {
	case control.PhaseWrite:
		v.step("create the volume", v.create)
		v.use()
		v.failures()
		s.encryptedReplicas(v)
		v.powerOff()
	case control.PhaseCheck:
		v.again()
		v.both() // after the unclean stop, one replica was rebuilt in full
		v.call(control.Kill, 0)
		v.without(0)
		v.powerOff()
	case control.PhaseDegraded:
		v.again()
		v.without(0)
		v.call(control.Restart, 0) // the host ends the machine during the rebuild
		v.step("wait for the loss of power", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
	case control.PhaseAway:
		v.movedAway()
	case control.PhaseHere, control.PhaseHereWithOne:
		v.movedHere(phase == control.PhaseHereWithOne)
	case control.PhaseOne:
		v.step("create the volume", v.create)
		v.use()
		v.call(control.Kill, 1)
		v.without(1)
		v.step("write on one replica", v.more(300))
		v.powerOff()
	case control.PhaseKept:
		v.step("publish to the node", func(ctx context.Context) (string, error) {
			return v.published(ctx, control.TargetCall{Do: control.Publish})
		})
		v.csi.step("unstage the earlier publication", v.csi.unstage) // as kubelet does after the pod was deleted
		v.again()
		v.step("the discarded replica is not used", v.await(func(w replica.Witness) bool { return w.InSync == replica.SetOf(1) && w.Discarded == replica.SetOf(0) }))
		v.call(control.Restart, 0)
		v.step("publish to the node, again", func(ctx context.Context) (string, error) { // as csi-attacher does
			return v.published(ctx, control.TargetCall{Do: control.Publish})
		})
		v.both() // the discarded replica was rebuilt in full
		v.end()
		v.step("delete the volume", func(ctx context.Context) (string, error) { return "", v.csi.target.remove(ctx, v.csi.name) })
	case control.PhaseUnstage:
		v.again()
		v.both()
		v.end()
		v.step("delete the volume", func(ctx context.Context) (string, error) { return "", v.csi.target.remove(ctx, v.csi.name) })
	}
	v.step("stop the node plugin", func(context.Context) (string, error) { return "", p.stop(unix.SIGTERM) })
	return nil
}

func (s *scenario) newReplicatedVolume(p *plugin, name, fsType string) *replicatedVolume {
	return &replicatedVolume{
		mirroredVolume: &mirroredVolume{scenario: s}, unreported: map[string]uint64{},
		csi: &csiVolume{scenario: s, plugin: p, pod: podOf(name), name: name, fsType: fsType},
	}
}

func (v *replicatedVolume) ask(ctx context.Context, c control.TargetCall) (map[string]string, error) {
	c.Volume, c.Node = v.csi.name, nodeID
	return v.target.(hostTarget).call(ctx, c)
}

// account gives the plugin access to the API server, over a path that can be cut.
func (v *replicatedVolume) account(ctx context.Context) error {
	m, err := v.ask(ctx, control.TargetCall{Do: control.Account})
	if err != nil {
		return err
	}
	if v.api, err = newRelay(control.Address + ":" + m["port"]); err != nil {
		return err
	}
	return errors.Join(
		os.MkdirAll(accountDir, 0o700),
		os.WriteFile(filepath.Join(accountDir, "ca.crt"), []byte(m["ca.crt"]), 0o600),
		os.WriteFile(filepath.Join(accountDir, "token"), []byte(m["token"]), 0o600),
		os.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1"), os.Setenv("KUBERNETES_SERVICE_PORT", v.api.port()))
}

func (v *replicatedVolume) create(ctx context.Context) (string, error) {
	return v.published(ctx, control.TargetCall{Do: control.Make, Replicated: true, Bytes: mirroredBytes})
}

// published executes a call that publishes the volume to this node.
func (v *replicatedVolume) published(ctx context.Context, c control.TargetCall) (string, error) {
	m, err := v.ask(ctx, c)
	if err != nil {
		return "", err
	}
	v.csi.id = m[control.VolumeID]
	delete(m, control.VolumeID)
	v.csi.context = m
	return m[request.KeyReplicated], nil
}

// again continues after a loss of power: it checks that the volume contains all reported writes,
// and begins to write again.
func (v *replicatedVolume) again() {
	v.step("publish to the node, again", func(ctx context.Context) (string, error) {
		return v.published(ctx, control.TargetCall{Do: control.Publish})
	})
	v.step("stage", v.stage)
	v.csi.step("publish", v.csi.publish)
	v.step("all acknowledged writes are there", v.found)
	v.write()
}

// stage repeats the call while a server does not respond, as kubelet does.
func (v *replicatedVolume) stage(ctx context.Context) (string, error) {
	for {
		_, err := v.csi.stage(ctx)
		again := []codes.Code{codes.Unavailable, codes.Aborted, codes.DeadlineExceeded}
		if !slices.Contains(again, status.Code(err)) || ctx.Err() != nil {
			return "", err
		}
		time.Sleep(time.Second)
	}
}

func (v *replicatedVolume) use() {
	v.step("stage", v.stage)
	v.csi.step("publish", v.csi.publish)
	v.write()
}

// found compares the volume with the writes that were reported before this boot. More writes may
// have been acknowledged than reported.
func (v *replicatedVolume) found(ctx context.Context) (string, error) {
	acked, err := v.ask(ctx, control.TargetCall{Do: control.Acked})
	if err != nil {
		return "", err
	}
	f, err := os.Open(v.csi.published)
	if err != nil {
		return "", err
	}
	defer f.Close()
	later := 0
	for at := range v.acked {
		b := make([]byte, 8)
		if _, err := f.ReadAt(b, int64(at)*blockBytes); err != nil {
			return "", err
		}
		got := binary.LittleEndian.Uint64(b)
		reported, _ := strconv.ParseUint(acked[strconv.Itoa(at)], 10, 64)
		if got < reported {
			return "", fmt.Errorf("block %d has write %d, but %d was acknowledged", at, got, reported)
		}
		if got > reported {
			later++
		}
		v.acked[at] = got
		v.count += got
	}
	v.figures = fmt.Sprintf("%d blocks with acknowledged writes; %d of them have later writes", len(acked), later)
	return v.figures, nil
}

// write begins to write, and reports the acknowledged writes to the host.
func (v *replicatedVolume) write() {
	v.onAck = func(at int, number uint64) {
		v.reporting.Lock()
		defer v.reporting.Unlock()
		v.unreported[strconv.Itoa(at)] = number
	}
	v.step("begin to write", func(ctx context.Context) (_ string, err error) {
		stop, err := v.writingTo(v.csi.published)
		if err != nil {
			return "", err
		}
		ended, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for tick := time.Tick(50 * time.Millisecond); ; {
				if err := v.report(); err != nil {
					fmt.Println("guest: report:", err)
				}
				select {
				case <-ended:
					return
				case <-tick:
				}
			}
		}()
		v.stopWriting = func() error {
			err := stop()
			close(ended)
			<-done
			return err
		}
		return "", nil
	})
	v.step("write", v.more(300))
}

func (v *replicatedVolume) report() error {
	v.reporting.Lock()
	now := v.unreported
	v.unreported = map[string]uint64{}
	v.reporting.Unlock()
	var all []control.Progress
	for at, number := range now {
		all = append(all, control.Progress{Volume: at, Acked: number})
	}
	if len(all) == 0 {
		return nil
	}
	var reply control.ProgressReply
	return v.host.post(context.Background(), control.PathProgress, all, &reply)
}

// end ends the writes, unstages the volume, and compares its replicas.
func (v *replicatedVolume) end() {
	v.step("end the writes", func(context.Context) (string, error) { return "", v.stopWriting() })
	v.unstage()
}

func (v *replicatedVolume) unstage() {
	v.csi.step("unpublish", v.csi.unpublish)
	v.csi.step("unstage", v.csi.unstage)
	v.csi.step("nothing is left", v.csi.gone)
	v.step("the stop was clean", func(ctx context.Context) (string, error) {
		w, err := v.witnessNow(ctx)
		if err == nil && (!w.Clean || w.InSync != replica.SetOf(0, 1)) {
			err = errors.New("the stop was not clean, or a replica is not in sync")
		}
		return fmt.Sprintf("%+v", w), err
	})
	v.step("the replicas are equal and have all acknowledged writes", func(ctx context.Context) (string, error) {
		r, err := request.ParseReplicated(v.csi.context[request.KeyReplicated])
		if err != nil {
			return "", err
		}
		var exports []connect.Export
		for _, x := range r.Replicas {
			e, err := connect.ParseExport(x.Export, nil)
			if err != nil {
				return "", err
			}
			exports = append(exports, e)
		}
		n, err := newNode(nodeID)
		if err != nil {
			return "", err
		}
		return v.compareExports(ctx, n, exports)
	})
}

func (v *replicatedVolume) witnessNow(ctx context.Context) (w replica.Witness, err error) {
	m, err := v.ask(ctx, control.TargetCall{Do: control.Witness})
	if err == nil {
		err = json.Unmarshal([]byte(m[control.Witness]), &w)
	}
	return w, err
}

// await waits until the witness has a property.
func (v *replicatedVolume) await(is func(replica.Witness) bool) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		start := time.Now()
		for {
			w, err := v.witnessNow(ctx)
			if err == nil && is(w) {
				return fmt.Sprintf("%.1f s: %+v", time.Since(start).Seconds(), w), nil
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				return "", fmt.Errorf("%w: the witness is %+v, %w; the plugin's log ends with %s; it waits in\n%s", ctx.Err(), w, err, v.csi.lastLog(), stacks(v.csi.cmd.Process.Pid))
			}
		}
	}
}

func (v *replicatedVolume) call(do string, id int) {
	v.step(fmt.Sprintf("%s the server of replica %d", do, id), func(ctx context.Context) (string, error) {
		_, err := v.ask(ctx, control.TargetCall{Do: do, Replica: id})
		return "", err
	})
}

func (v *replicatedVolume) without(id replica.ID) {
	start := time.Now()
	v.step("the witness no longer lists the replica", v.await(func(w replica.Witness) bool { return w.InSync == replica.SetOf(1-id) }))
	v.step("writes go on", v.measured("writes on one replica", start))
}

func (v *replicatedVolume) both() {
	start := time.Now()
	v.step("both replicas are in sync", v.await(func(w replica.Witness) bool { return w.InSync == replica.SetOf(0, 1) }))
	v.step("writes go on", v.measured("in sync", start))
}

func (v *replicatedVolume) lose(id int, lost, back string) {
	v.call(lost, id)
	v.without(replica.ID(id))
	v.call(back, id)
	v.both()
}

// powerOff asks the host to end the machine.
func (v *replicatedVolume) powerOff() {
	v.step("lose power", func(ctx context.Context) (string, error) {
		_, err := v.ask(ctx, control.TargetCall{Do: control.PowerOff})
		return "", errors.Join(err, errors.New("the power was not lost"))
	})
}
