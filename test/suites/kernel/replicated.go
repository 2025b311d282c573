//go:build kernel

package kernel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/witness"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// replicatedHost has two storage servers, each with a real SPDK target and a proxy, and an API
// server for the witnesses.
type replicatedHost struct {
	*csiTarget
	t         *testing.T
	processes map[string]*targetProcess // by the server's name
	api       *witnessAPI
	witnesses *witness.Store

	mu sync.Mutex
	// acked contains the number of the last acknowledged write of each block.
	acked     map[string]string
	published map[string]request.Replicated // by the volume's name
}

func newReplicatedHost(t *testing.T) *replicatedHost {
	h := &replicatedHost{t: t, processes: map[string]*targetProcess{}, acked: map[string]string{}, published: map[string]request.Replicated{}}
	var servers []csiServer
	for _, name := range []string{"server-a", "server-b"} {
		p := startTarget(t)
		h.processes[name] = p
		servers = append(servers, newCSIServer(t, name, p.socket(), "nvme-tcp", p.saved()))
	}
	h.api = newWitnessAPI(t)
	h.witnesses = h.api.store(t)
	h.csiTarget = newCSITargets(t, servers...)
	h.SetWitnesses(h.witnesses)
	return h
}

// progress records the acknowledged writes that the guest reports.
func (h *replicatedHost) progress(all []control.Progress) (end bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range all {
		h.acked[p.Volume] = strconv.FormatUint(p.Acked, 10)
	}
	return false
}

// on executes the calls of a machine.
func (h *replicatedHost) on(m *Machine) func(context.Context, control.TargetCall) (map[string]string, error) {
	return func(ctx context.Context, c control.TargetCall) (map[string]string, error) {
		switch c.Do {
		case control.PowerOff:
			m.PowerOff()
			<-ctx.Done()
			return nil, ctx.Err()
		case control.Account:
			_, port := h.api.address(h.t)
			return map[string]string{"port": port, "ca.crt": string(h.api.ca), "token": c.Node}, nil
		case control.Acked:
			h.mu.Lock()
			defer h.mu.Unlock()
			return maps.Clone(h.acked), nil
		case control.Witness:
			r, err := h.record(ctx, c.Volume)
			if err != nil {
				return nil, err
			}
			text, err := json.Marshal(r.Witness)
			return map[string]string{control.Witness: string(text)}, err
		case control.Kill, control.Pause, control.Continue, control.Restart:
			return nil, h.change(ctx, c)
		case control.Withdraw:
			_, err := h.ControllerUnpublishVolume(ctx, unpublishRequest(h.volumes[c.Volume].GetVolumeId(), c.Node))
			return nil, err
		}
		reply, err := h.do(ctx, c)
		for status.Code(driver.Status(err)) == codes.Unavailable && ctx.Err() == nil { // sidecars repeat such calls
			time.Sleep(time.Second)
			reply, err = h.do(ctx, c)
		}
		if r, ok := reply[request.KeyReplicated]; ok && err == nil {
			reply[control.VolumeID] = h.volumes[c.Volume].GetVolumeId()
			h.mu.Lock()
			defer h.mu.Unlock()
			h.published[c.Volume], err = request.ParseReplicated(r)
		}
		return reply, err
	}
}

func (h *replicatedHost) record(ctx context.Context, volume string) (witness.Record, error) {
	id, err := request.ParseVolumeID(h.volumes[volume].GetVolumeId())
	if err != nil {
		return witness.Record{}, err
	}
	return h.witnesses.Get(ctx, id.UUID)
}

// change kills, pauses, continues or restarts the server of a replica.
func (h *replicatedHost) change(ctx context.Context, c control.TargetCall) error {
	r, err := h.record(ctx, c.Volume)
	if err != nil {
		return err
	}
	p := h.processes[r.Places[replica.ID(c.Replica)].Server]
	switch c.Do {
	case control.Kill:
		if err := h.saved(ctx, p, c); err != nil {
			return err
		}
		p.kill()
		return nil
	case control.Pause:
		return p.process.Process.Signal(syscall.SIGSTOP)
	case control.Continue:
		return p.process.Process.Signal(syscall.SIGCONT)
	case control.Restart:
		return p.start(ctx)
	}
	return errors.ErrUnsupported
}

// onRebuild calls f once, when a node begins to rebuild a replica.
func (h *replicatedHost) onRebuild(f func()) {
	h.api.mu.Lock()
	defer h.api.mu.Unlock()
	h.api.onStatus = func(stored object) {
		held := stored["held"].(object)["replicas"].([]any)
		if inSync := stored["inSync"].([]any); len(held) == 2 && len(inSync) == 1 {
			h.api.onStatus = nil
			f()
		}
	}
}

// saved waits until the proxy has saved the export of a replica.
func (h *replicatedHost) saved(ctx context.Context, p *targetProcess, c control.TargetCall) error {
	h.mu.Lock()
	var nqn string
	for _, x := range h.published[c.Volume].Replicas {
		if x.Number == c.Replica {
			nqn = x.Export[connect.KeyNQN]
		}
	}
	h.mu.Unlock()
	for tick := time.Tick(50 * time.Millisecond); ; {
		text, err := os.ReadFile(filepath.Join(p.saved(), "current.json"))
		if err == nil && bytes.Contains(text, []byte(nqn)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the proxy has not saved the export %s: %w", nqn, ctx.Err())
		case <-tick:
		}
	}
}
