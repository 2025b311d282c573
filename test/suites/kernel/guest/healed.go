package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/heal"
	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/witness"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// A healedVolume is a volume with a replica on each of two storage servers. Package heal runs its
// mirror.
type healedVolume struct {
	*mirroredVolume
	servers   replicaServers
	host      connect.Host
	connector connect.Watcher
	healer    *heal.Healer
	stop      func() // of the healer
	names     []string
	described heal.Volume
	device    string
}

// replicaServers are two storage servers that can be made to fail.
type replicaServers interface {
	make(ctx context.Context, volume string, size int64, h connect.Host) (map[string]string, error)
	// change kills, pauses, continues or restarts a server.
	change(ctx context.Context, do, volume string, size int64, h connect.Host) error
}

// processServers are SPDK targets on the host.
type processServers struct{ hostTarget }

func (p processServers) change(ctx context.Context, do, volume string, size int64, h connect.Host) error {
	_, err := p.call(ctx, control.TargetCall{Do: do, Volume: volume, Bytes: size, HostNQN: h.NQN})
	return err
}

// cutServers are exports of the guest's own target. Cutting the network to a server has the same
// effect on the node as a dead or a silent server.
type cutServers struct {
	*nvmeTarget
	paths map[string]*relay
}

func (c cutServers) make(ctx context.Context, volume string, size int64, h connect.Host) (map[string]string, error) {
	m, err := c.nvmeTarget.make(ctx, volume, size, h)
	if err == nil {
		c.paths[volume], err = newRelay(c.address + ":" + c.port)
	}
	if err == nil {
		m[connect.KeyTargetPort] = c.paths[volume].port()
	}
	return m, err
}

func (c cutServers) change(_ context.Context, do, volume string, _ int64, _ connect.Host) error {
	c.paths[volume].set(map[string]cut{control.Kill: refuses, control.Restart: whole, control.Pause: drops, control.Continue: whole}[do])
	return nil
}

// healed is the scenario where storage servers fail during writes to a volume.
func (s *scenario) healed(t replicaServers) (err error) {
	defer s.end(&err)
	v := &healedVolume{mirroredVolume: &mirroredVolume{scenario: s, witness: replica.NewWitness(replica.SetOf(0, 1)).Publish(nodeID)}, servers: t}
	v.names = []string{control.ReplicaA, control.ReplicaB}
	v.host = connect.HostOf(nodeID)
	v.limit = 4 * time.Minute
	v.described = heal.Volume{Name: "mirrored", UID: "uid", SizeBytes: mirroredBytes, Node: nodeID, Generation: 1}
	v.step("create the replicas", func(ctx context.Context) (string, error) {
		if err := modprobe("nvme-tcp", "dm_mirror"); err != nil {
			return "", err
		}
		for i, name := range v.names {
			m, err := t.make(ctx, name, mirror.HeadBytes+mirroredBytes, v.host)
			if err != nil {
				return "", err
			}
			m["ctrl_loss_tmo"], m["fast_io_fail_tmo"] = "-1", "-1"
			e, err := connect.ParseExport(m, nil)
			if err != nil {
				return "", err
			}
			v.described.Replicas = append(v.described.Replicas, heal.Replica{ID: replica.ID(i), Server: name, UUID: e.NSUUID, Export: e})
		}
		return "", nil
	})
	v.step("stage", func(ctx context.Context) (string, error) { return v.start(ctx, false) })
	var stop func() error
	v.step("begin to write", func(ctx context.Context) (_ string, err error) {
		stop, err = v.writingTo(v.device)
		return "", err
	})
	v.step("write", v.more(300))
	v.inCase("a server is killed under writes, and returns", func() { v.lose(1, control.Kill, control.Restart) })
	v.inCase("the other server is killed under writes, and returns", func() { v.lose(0, control.Kill, control.Restart) })
	v.inCase("a server is silent under writes, and continues", func() { v.lose(1, control.Pause, control.Continue) })
	v.inCase("a server is killed, and the plugin is restarted before the replica is given up", func() {
		start := time.Now()
		v.call("kill server 0", control.Kill, 0)
		v.step("restart the plugin", func(ctx context.Context) (string, error) { return v.start(ctx, true) })
		v.without(0, start)
		start = time.Now()
		v.call("restart server 0", control.Restart, 0)
		v.both(start)
	})
	v.step("write", v.more(300))
	v.step("end the writes", func(context.Context) (string, error) { return "", stop() })
	v.step("unstage", func(ctx context.Context) (string, error) { return "", v.healer.Unstage(ctx, v.described) })
	v.step("the stop was clean", func(context.Context) (string, error) {
		if !v.witness.Clean || v.witness.InSync != replica.SetOf(0, 1) {
			return "", fmt.Errorf("the witness is %+v", v.witness)
		}
		return fmt.Sprintf("%+v", v.witness), nil
	})
	v.stop()
	v.step("the replicas are equal and have all acknowledged writes", v.compare)
	return nil
}

// Get implements heal.Witnesses.
func (v *healedVolume) Get(ctx context.Context, _ string) (witness.Record, error) {
	w, err := v.mirroredVolume.Read(ctx)
	return witness.Record{UID: "uid", Witness: w}, err
}

// Change implements heal.Witnesses.
func (v *healedVolume) Change(ctx context.Context, _, _ string, change func(replica.Witness) (replica.Witness, error)) (witness.Record, error) {
	w, err := v.mirroredVolume.Change(ctx, change)
	return witness.Record{UID: "uid", Witness: w}, err
}

// start starts a new plugin's healer, which stages the volume, or watches it if it is staged.
func (v *healedVolume) start(ctx context.Context, staged bool) (_ string, err error) {
	if v.stop != nil {
		v.stop()
	}
	v.connector, err = connect.New(v.host, connect.Options{Log: slog.New(slog.DiscardHandler), NVMe: connect.NVMeOptions{CtrlLossTimeout: time.Minute, ReconnectDelay: time.Second, KeepAlive: 5 * time.Second}})
	if err != nil {
		return "", err
	}
	v.healer = heal.New(heal.Options{Connector: v.connector, Witnesses: v, Log: slog.New(slog.NewTextHandler(os.Stdout, nil))})
	if staged {
		err = v.healer.Watch(v.described)
	} else {
		v.device, err = v.healer.Stage(ctx, v.described)
	}
	running, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { v.healer.Run(running); close(done) }()
	v.stop = func() { cancel(); <-done }
	return v.device, err
}

func (v *healedVolume) call(step, do string, id int) {
	v.step(step, func(ctx context.Context) (string, error) {
		return "", v.servers.change(ctx, do, v.names[id], mirror.HeadBytes+mirroredBytes, v.host)
	})
}

// without waits until writes succeed without a replica.
func (v *healedVolume) without(id int, since time.Time) {
	v.step("the witness no longer lists the replica", func(ctx context.Context) (string, error) {
		return v.await(ctx, func(w replica.Witness) bool { return w.InSync == replica.SetOf(replica.ID(1-id)) })
	})
	v.step("writes go on", v.measured("writes on one replica", since))
}

// both waits until both replicas are in sync.
func (v *healedVolume) both(since time.Time) {
	v.step("both replicas are in sync", func(ctx context.Context) (string, error) {
		return v.await(ctx, func(w replica.Witness) bool { return w.InSync == replica.SetOf(0, 1) })
	})
	v.step("writes go on", v.measured("in sync", since))
}

// measured waits until further writes have been acknowledged, and adds a time to the figures of the
// case.
func (v *mirroredVolume) measured(name string, since time.Time) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		detail, err := v.more(300)(ctx)
		v.scenario.found = strings.TrimPrefix(fmt.Sprintf("%s; %s after %.1f s", v.scenario.found, name, time.Since(since).Seconds()), "; ")
		v.figures = v.scenario.found
		return detail, err
	}
}

func (v *healedVolume) lose(id int, lost, back string) {
	start := time.Now()
	v.call(fmt.Sprintf("%s server %d", lost, id), lost, id)
	v.without(id, start)
	start = time.Now()
	v.call(fmt.Sprintf("%s server %d", back, id), back, id)
	v.both(start)
}

// await waits until the witness has a property.
func (v *healedVolume) await(ctx context.Context, is func(replica.Witness) bool) (string, error) {
	start := time.Now()
	for {
		w, err := v.mirroredVolume.Read(ctx)
		if err != nil || is(w) {
			return fmt.Sprintf("%.1f s: %+v", time.Since(start).Seconds(), w), err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			state, _ := v.healer.State(v.described.Name)
			return "", fmt.Errorf("%w: the witness is %+v, the state %+v", ctx.Err(), w, state)
		}
	}
}

// compare reads both replicas, and compares them with each other and with the acknowledged writes.
func (v *healedVolume) compare(ctx context.Context) (string, error) {
	var exports []connect.Export
	for _, r := range v.described.Replicas {
		exports = append(exports, r.Export)
	}
	return v.compareExports(ctx, v.connector, exports)
}

// compareExports compares the replicas that are exported to this node, which is not using them.
func (v *mirroredVolume) compareExports(ctx context.Context, connector connect.Connector, exports []connect.Export) (string, error) {
	var data [2][]byte
	for i, e := range exports {
		d, err := connector.Connect(ctx, e)
		if err != nil {
			return "", err
		}
		if data[i], err = os.ReadFile(d.Path); err != nil {
			return "", err
		}
		data[i] = data[i][mirror.HeadBytes:]
		if err := connector.Disconnect(ctx, e); err != nil {
			return "", err
		}
	}
	var lost []string
	for at, number := range v.acked {
		for i := range data {
			if got := binary.LittleEndian.Uint64(data[i][at*blockBytes:]); got < number {
				lost = append(lost, fmt.Sprintf("replica %d has write %d of block %d, but %d was acknowledged", i, got, at, number))
			}
		}
	}
	if len(lost) > 0 || !bytes.Equal(data[0], data[1]) {
		return "", fmt.Errorf("equal %v, %d lost: %s", bytes.Equal(data[0], data[1]), len(lost), strings.Join(lost[:min(3, len(lost))], "; "))
	}
	return fmt.Sprintf("%d writes", v.count), nil
}
