package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/replica"
)

const (
	mirroredBytes  = 32 * mib
	mirroredBlocks = 24 * mib / blockBytes // part that is written; the rest is for differences planted by the test
	mirrorWriters  = 8
	blockBytes     = 4096
)

// mirrored is the scenario for a volume with two replicas, which package mirror mirrors with the
// kernel's dm-mirror. The test can make the replicas' devices fail.
func (s *scenario) mirrored() (err error) {
	defer s.end(&err)
	v := &mirroredVolume{scenario: s, witness: replica.NewWitness(replica.SetOf(0, 1)).Publish("vm-node")}
	for _, name := range []string{"a", "b", "c"} {
		v.legs = append(v.legs, &mirrorLeg{name: name})
	}
	v.found = [2]*mirrorLeg{v.legs[0], v.legs[1]}
	v.step("create the replicas' devices", func(ctx context.Context) (string, error) {
		if err := modprobe("nvme-tcp", "dm_mirror"); err != nil {
			return "", err
		}
		n, err := newNode(nodeID)
		if err != nil {
			return "", err
		}
		t := newNVMeTarget()
		for _, l := range v.legs {
			if err := l.create(ctx, t, n); err != nil {
				return "", err
			}
		}
		return "", nil
	})
	s.inCase("a replica fails under writes, and returns by the log", v.failsAndReturns)
	s.inCase("power loss, and a rebuild in full", v.losesPower)
	s.inCase("wrong and changed replicas are refused", v.isRefused)
	return nil
}

// A mirroredVolume is a volume with its witness, which all plugins of the scenario share.
type mirroredVolume struct {
	*scenario
	legs  []*mirrorLeg
	found [2]*mirrorLeg // by replica

	mu      sync.Mutex
	witness replica.Witness
	mirror  *mirror.Mirror
	acked   [mirroredBlocks]uint64
	count   uint64
	changed chan struct{}
	writers *errgroup.Group
	onAck   func(at int, number uint64) // called for each acknowledged write; may be nil
}

func (v *mirroredVolume) Read(context.Context) (replica.Witness, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.witness, nil
}

func (v *mirroredVolume) Change(_ context.Context, change func(replica.Witness) (replica.Witness, error)) (replica.Witness, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w, err := change(v.witness)
	if err == nil {
		v.witness = w
	}
	return v.witness, err
}

// start starts the mirror as a newly started plugin would.
func (v *mirroredVolume) start(want replica.Decision) func(context.Context) (string, error) {
	return func(ctx context.Context) (_ string, err error) {
		v.mirror, err = mirror.New(mirror.Volume{ID: "t0:mirrored", Size: mirroredBytes, Writer: v.witness.Writer, UUIDs: [replica.MaxReplicas]string{"uuid-0", "uuid-1"}}, mirror.Options{
			Witness: v,
			Find: func(_ context.Context, uuid string) (string, error) {
				return v.found[uuid[5]-'0'].device, nil
			},
			Release: func(context.Context, string) error { return nil },
			Log:     slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return "", err
		}
		d, err := v.mirror.Start(ctx)
		if err == nil && d != want {
			err = fmt.Errorf("decided %+v, want %+v", d, want)
		}
		return fmt.Sprintf("%+v", d), err
	}
}

// writing writes blocks until stop is called.
func (v *mirroredVolume) writing(ctx context.Context) (stop func() error, err error) {
	status, err := v.mirror.Status(ctx)
	if err != nil {
		return nil, err
	}
	return v.writingTo(status.Device)
}

// writingTo writes blocks to a device until stop is called.
func (v *mirroredVolume) writingTo(device string) (stop func() error, err error) {
	writing, cancel := context.WithCancel(context.Background())
	g, writing := errgroup.WithContext(writing)
	v.writers, v.changed = g, make(chan struct{}, 1)
	for n := range mirrorWriters {
		g.Go(func() error { return v.writer(writing, device, n) })
	}
	return func() error {
		cancel()
		return g.Wait()
	}, nil
}

// writer writes its blocks, one at a time, each time with a higher number.
func (v *mirroredVolume) writer(ctx context.Context, device string, n int) error {
	f, err := os.OpenFile(device, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	space := make([]byte, 2*blockBytes)
	block := space[-uintptr(unsafe.Pointer(&space[0]))%blockBytes:][:blockBytes]
	for i := uint64(1); ctx.Err() == nil; i++ {
		at := int(i*2654435761%(mirroredBlocks/mirrorWriters))*mirrorWriters + n
		v.mu.Lock()
		number := v.acked[at] + 1
		v.mu.Unlock()
		for o := 0; o < blockBytes; o += 8 {
			binary.LittleEndian.PutUint64(block[o:], number)
		}
		if _, err := f.WriteAt(block, int64(at)*blockBytes); err != nil {
			return err
		}
		v.mu.Lock()
		v.acked[at] = number
		v.count++
		v.mu.Unlock()
		if v.onAck != nil {
			v.onAck(at, number)
		}
		select {
		case v.changed <- struct{}{}:
		default:
		}
	}
	return nil
}

// more waits until n further writes have been acknowledged.
func (v *mirroredVolume) more(n uint64) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		v.mu.Lock()
		until := v.count + n
		v.mu.Unlock()
		for {
			v.mu.Lock()
			count := v.count
			v.mu.Unlock()
			if count >= until {
				return fmt.Sprintf("%d writes", count), nil
			}
			select {
			case <-v.changed:
			case <-ctx.Done():
				return "", fmt.Errorf("only %d of %d writes: %w", count, until, ctx.Err())
			}
		}
	}
}

// contains checks that each block of a replica contains the last acknowledged write or the one
// after it.
func (v *mirroredVolume) contains(l *mirrorLeg) error {
	v.mu.Lock()
	acked := v.acked
	v.mu.Unlock()
	data, err := l.data()
	if err != nil {
		return err
	}
	for at, number := range acked {
		if got := binary.LittleEndian.Uint64(data[at*blockBytes:]); got < number {
			return fmt.Errorf("replica %s has write %d of block %d, but %d was acknowledged", l.name, got, at, number)
		}
	}
	return nil
}

// equal checks that both replicas have the same contents.
func (v *mirroredVolume) equal(context.Context) (string, error) {
	a, errA := v.legs[0].data()
	b, errB := v.legs[1].data()
	if err := errors.Join(errA, errB); err != nil {
		return "", err
	}
	for at := 0; at < len(a); at += blockBytes {
		if !bytes.Equal(a[at:at+blockBytes], b[at:at+blockBytes]) {
			return "", fmt.Errorf("the replicas differ in block %d: A has write %d, B has %d, %d was acknowledged", at/blockBytes,
				binary.LittleEndian.Uint64(a[at:]), binary.LittleEndian.Uint64(b[at:]), v.acked[min(at/blockBytes, mirroredBlocks-1)])
		}
	}
	return fmt.Sprintf("%d writes", v.count), errors.Join(v.contains(v.legs[0]), v.contains(v.legs[1]))
}

// until waits until is(s) returns true, where s is the mirror's status.
func (v *mirroredVolume) until(what string, is func(mirror.Status) bool) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		for {
			s, err := v.mirror.Status(ctx)
			if err != nil || is(s) {
				return fmt.Sprintf("%+v", s), err
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return "", fmt.Errorf("%s: %w, status %+v", what, ctx.Err(), s)
			}
		}
	}
}

func (v *mirroredVolume) complete(ctx context.Context) (string, error) {
	for {
		done, err := v.mirror.Complete(ctx)
		if err != nil || done {
			return fmt.Sprintf("%+v", v.witness), err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			s, err := v.mirror.Status(context.Background())
			return "", fmt.Errorf("the rebuild does not end: %+v, %w", s, err)
		}
	}
}

const plantedAt = 30 * mib // beyond the blocks that are written to

func (v *mirroredVolume) failsAndReturns() {
	b := v.legs[1]
	var stop func() error
	v.step("start a new volume", v.start(replica.Decision{Action: replica.Start, InSync: replica.SetOf(0, 1)}))
	v.step("begin to write", func(ctx context.Context) (_ string, err error) {
		stop, err = v.writing(ctx)
		return "", err
	})
	v.step("write", v.more(500))
	v.step("B fails", func(context.Context) (string, error) { return "", b.fail() })
	v.step("the mirror reports B", v.until("B has failed", func(s mirror.Status) bool { return s.Failed == replica.SetOf(1) }))
	v.step("no acknowledged write is missing on B", func(context.Context) (string, error) { return "", v.contains(b) })
	v.step("drop B", func(ctx context.Context) (string, error) {
		return fmt.Sprintf("%+v", v.witness), v.mirror.Drop(ctx, 1)
	})
	v.step("writes go on", v.more(500))
	v.step("the witness says so", func(context.Context) (string, error) {
		if w := v.witness; w.InSync != replica.SetOf(0) || w.Held != w.InSync || w.Logged != replica.SetOf(1) {
			return "", fmt.Errorf("the witness is %+v", w)
		}
		return "", nil
	})
	v.step("a restarted plugin takes the mirror over", v.start(replica.Decision{Action: replica.Start, InSync: replica.SetOf(0), Logged: replica.SetOf(1)}))
	v.step("B is back", func(context.Context) (string, error) {
		return "", errors.Join(b.become(b.healthy()), b.put(plantedAt, 'x'))
	})
	v.step("add B", func(ctx context.Context) (string, error) { return "", v.mirror.Add(ctx, 1) })
	v.step("B is in sync", v.complete)
	v.step("write", v.more(500))
	v.step("no acknowledged write is missing on B", func(context.Context) (string, error) { return "", v.contains(b) })
	v.step("the log copied the marked regions only", func(context.Context) (string, error) {
		data, err := b.data()
		if err == nil && data[plantedAt] != 'x' {
			err = errors.New("a region without a mark was copied")
		}
		return "", errors.Join(err, b.put(plantedAt, 0))
	})
	v.step("B fails for a moment, and the writes are repeated", func(ctx context.Context) (string, error) {
		if err := b.fail(); err != nil {
			return "", err
		}
		failed := v.until("B has failed", func(s mirror.Status) bool { return s.Failed == replica.SetOf(1) })
		if _, err := failed(ctx); err != nil {
			return "", err
		}
		return "", errors.Join(b.become(b.healthy()), v.mirror.Retry(ctx))
	})
	v.step("write", v.more(500))
	v.step("no acknowledged write is missing on B", func(context.Context) (string, error) { return "", v.contains(b) })
	v.step("B is silent while the mirror is suspended, and then fails", b.failsDuringASuspend)
	v.step("the mirror reports B", v.until("B has failed", func(s mirror.Status) bool { return s.Failed == replica.SetOf(1) }))
	v.step("no acknowledged write is missing on B", func(context.Context) (string, error) { return "", v.contains(b) })
	v.step("B is back, and the writes are repeated", func(ctx context.Context) (string, error) {
		return "", errors.Join(b.become(b.healthy()), v.mirror.Retry(ctx))
	})
	v.step("write", v.more(500))
	v.step("a mirror in use is not stopped", func(ctx context.Context) (string, error) {
		return refusal(v.mirror.Stop(ctx), mirror.ErrBusy)
	})
	v.step("end the writes", func(context.Context) (string, error) { return "", stop() })
	v.step("stop", func(ctx context.Context) (string, error) { return "", v.mirror.Stop(ctx) })
	v.step("the replicas are equal", v.equal)
}

func (v *mirroredVolume) losesPower() {
	var stop func() error
	v.step("start after a clean stop", v.start(replica.Decision{Action: replica.Start, InSync: replica.SetOf(0, 1)}))
	v.step("begin to write", func(ctx context.Context) (_ string, err error) {
		stop, err = v.writing(ctx)
		return "", err
	})
	v.step("write", v.more(200))
	v.step("end the writes", func(context.Context) (string, error) { return "", stop() })
	v.step("the mirror disappears", func(context.Context) (string, error) {
		return run("dmsetup", "remove", "--noudevsync", "spdkmirror-t0:mirrored")
	})
	v.step("a write in flight was on B only", func(context.Context) (string, error) { return "", v.legs[1].put(plantedAt, 'y') })
	v.step("stop is not clean", func(ctx context.Context) (string, error) {
		if err := v.mirror.Stop(ctx); err != nil || v.witness.Clean {
			return "", fmt.Errorf("the witness is %+v: %w", v.witness, err)
		}
		return "", nil
	})
	v.step("one replica starts", v.start(replica.Decision{Action: replica.Start, InSync: replica.SetOf(0), InFull: replica.SetOf(1)}))
	v.step("add B", func(ctx context.Context) (string, error) { return "", v.mirror.Add(ctx, 1) })
	v.step("B is in sync", v.complete)
	v.step("stop", func(ctx context.Context) (string, error) { return "", v.mirror.Stop(ctx) })
	v.step("the replicas are equal", v.equal)
}

func (v *mirroredVolume) isRefused() {
	refused := func(name, text string) {
		v.step(name, func(ctx context.Context) (string, error) {
			_, err := v.start(replica.Decision{})(ctx)
			if !errors.Is(err, mirror.ErrRefused) || !bytes.Contains([]byte(err.Error()), []byte(text)) {
				return "", fmt.Errorf("got %w, want a refusal with %q", err, text)
			}
			return err.Error(), nil
		})
		v.step("nothing runs", func(context.Context) (string, error) {
			out, err := run("dmsetup", "ls")
			if bytes.Contains([]byte(out), []byte("spdkmirror")) {
				err = errors.New(out)
			}
			return "", err
		})
	}
	v.found[1] = v.legs[0]
	refused("A in place of B is refused", "a copy of replica 0")
	v.found[1] = v.legs[2]
	refused("an empty device in place of B is refused", "other contents")
	v.step("other data on it", func(context.Context) (string, error) { return "", copyOver(v.legs[0].file(), v.legs[2].file()) })
	refused("a copy of A in place of B is refused", "a copy of replica 0")
	v.found[1] = v.legs[1]
	v.step("the right replicas start", v.start(replica.Decision{Action: replica.Start, InSync: replica.SetOf(0, 1)}))
	v.step("stop", func(ctx context.Context) (string, error) { return "", v.mirror.Stop(ctx) })
}
