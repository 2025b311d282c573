package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// failures lets servers, the plugin and the API server fail and return during writes.
func (v *replicatedVolume) failures() {
	v.inCase("a server is killed under writes, and returns", func() { v.lose(1, control.Kill, control.Restart) })
	v.inCase("the other server is killed under writes, and returns", func() { v.lose(0, control.Kill, control.Restart) })
	v.inCase("a server is silent under writes, and continues", func() { v.lose(1, control.Pause, control.Continue) })
	v.inCase("a server and the plugin are killed", func() {
		v.call(control.Kill, 0)
		v.restartPlugin()
		v.without(0)
		v.call(control.Restart, 0)
		v.restartPlugin()
		v.both()
	})
	v.inCase("the API server is away while a server is killed", func() {
		v.step("the API server is away", func(context.Context) (string, error) { v.api.set(drops); return "", nil })
		v.call(control.Kill, 1)
		v.waits()
		v.step("the witness still lists the replica", v.await(func(w replica.Witness) bool { return w.InSync == replica.SetOf(0, 1) }))
		v.step("the API server returns", func(context.Context) (string, error) { v.api.set(whole); return "", nil })
		v.without(1)
		v.call(control.Restart, 1)
		v.both()
	})
	v.inCase("the API server is away while a server and the plugin are killed", func() {
		v.step("the API server is away", func(context.Context) (string, error) { v.api.set(refuses); return "", nil })
		v.call(control.Kill, 0)
		v.waits()
		v.restartPlugin()
		v.step("the API server returns", func(context.Context) (string, error) { v.api.set(whole); return "", nil })
		v.without(0)
		v.call(control.Restart, 0)
		v.both()
	})
	v.inCase("both servers are killed, one after the other", func() {
		v.call(control.Kill, 1)
		v.without(1)
		v.call(control.Kill, 0)
		v.waits()
		v.call(control.Restart, 1)
		v.step("the old replica is not used", v.await(func(w replica.Witness) bool { return w.InSync == replica.SetOf(0) }))
		v.waits()
		v.call(control.Restart, 0)
		v.step("writes go on", v.more(300))
		v.both()
	})
	rounds := 4
	if v.all {
		rounds = 60
	}
	for range rounds {
		seed := rand.Uint64()
		v.inCase("random failures", func() {
			v.step("begin a random sequence", func(context.Context) (string, error) { return fmt.Sprintf("seed %d", seed), nil })
			v.randomRound(rand.New(rand.NewPCG(seed, 0)))
		})
	}
}

func (v *replicatedVolume) restartPlugin() {
	v.step("kill and start the plugin", func(ctx context.Context) (string, error) {
		if err := v.csi.stop(unix.SIGKILL); err != nil {
			return "", err
		}
		return "", v.csi.start(ctx, false)
	})
}

// waits checks that writes are no longer acknowledged after some time.
func (v *replicatedVolume) waits() {
	v.step("writes wait", func(ctx context.Context) (string, error) {
		counted := func() uint64 {
			v.mu.Lock()
			defer v.mu.Unlock()
			return v.count
		}
		var last uint64
		for since := time.Now(); time.Since(since) < 10*time.Second; { // twice the time after which a replica is given up
			if now := counted(); now != last {
				last, since = now, time.Now()
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return "", fmt.Errorf("%d writes: %w", last, ctx.Err())
			}
		}
		return fmt.Sprintf("%d writes", last), nil
	})
}

// randomRound lets a server fail and return, and lets other parts fail at random moments before and
// after.
func (v *replicatedVolume) randomRound(r *rand.Rand) {
	id, lost, back := r.IntN(2), control.Kill, control.Restart
	if r.IntN(2) == 0 {
		lost, back = control.Pause, control.Continue
	}
	away := false
	more := func() {
		v.step("pause", func(context.Context) (string, error) {
			d := time.Duration(r.IntN(9000)) * time.Millisecond
			time.Sleep(d)
			return d.String(), nil
		})
		switch r.IntN(4) {
		case 0:
			v.restartPlugin()
		case 1:
			away = !away
			v.step(fmt.Sprintf("the API server is away: %v", away), func(context.Context) (string, error) {
				v.api.set(map[bool]cut{true: refuses, false: whole}[away])
				return "", nil
			})
		}
	}
	more()
	v.call(lost, id)
	more()
	more()
	v.call(back, id)
	more()
	v.step("everything is back", func(context.Context) (string, error) { v.api.set(whole); return "", nil })
	if lost == control.Kill && r.IntN(2) == 0 { // as csi-attacher does
		v.step("publish to the node, again", func(ctx context.Context) (string, error) {
			return v.published(ctx, control.TargetCall{Do: control.Publish})
		})
	}
	v.both()
}

// encryptedReplicas loses a server of an encrypted volume with a file system.
func (s *scenario) encryptedReplicas(other *replicatedVolume) {
	s.inCase("an encrypted file system", func() {
		v := s.newReplicatedVolume(other.csi.plugin, "encrypted", "ext4")
		v.step("create the volume", func(ctx context.Context) (string, error) {
			made, err := v.published(ctx, control.TargetCall{Do: control.Make, Replicated: true, Bytes: encryptedSize("ext4")})
			v.csi.encrypt()
			return made, err
		})
		v.step("stage", v.stage)
		v.csi.step("publish", v.csi.publish)
		var w *recorder
		v.step("begin to write", func(ctx context.Context) (_ string, err error) {
			if err := emptyFile(v.csi.file(), mib); err != nil {
				return "", err
			}
			if w, err = record(v.csi.file(), 1, mib); err != nil {
				return "", err
			}
			return w.more(ctx, 20)
		})
		v.call(control.Kill, 1)
		v.step("the witness no longer lists the replica", v.await(func(w replica.Witness) bool { return w.InSync == replica.SetOf(0) }))
		v.step("writes go on", func(ctx context.Context) (string, error) { return w.more(ctx, 20) })
		v.call(control.Restart, 1)
		v.step("both replicas are in sync", v.await(func(w replica.Witness) bool { return w.InSync == replica.SetOf(0, 1) }))
		other.both()
		v.step("all data is there", w.verify)
		v.unstage()
		v.step("stage", v.stage)
		v.csi.step("publish", v.csi.publish)
		v.step("all data is there", w.verify)
		v.unstage()
		v.step("delete the volume", func(ctx context.Context) (string, error) { return "", v.csi.target.remove(ctx, v.csi.name) })
	})
}
