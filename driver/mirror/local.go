package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// A Local contains the part of the mirror's state that can be read from the kernel alone.
type Local struct {
	// Device is the path of the volume's block device.
	Device string
	// Complete means that the mirror was loaded with both replicas in sync.
	Complete bool
	// Failed means that I/O to a replica or to the log has failed, so writes may be waiting.
	Failed bool
}

// Local reads the kernel's state of the mirror. It reads neither the witness nor the replicas, so
// it can be called often. It fails with ErrRefused if the mirror is not running.
func (m *Mirror) Local() (Local, error) {
	k, found, err := m.kernel.find(m.name())
	switch {
	case err != nil:
		return Local{}, err
	case !found || k.uuid != m.uuid() || k.active.kind == "":
		return Local{}, fmt.Errorf("%w: its mirror is not running: stage the volume again", ErrRefused)
	}
	t, err := parseTable(k.active)
	if err != nil {
		return Local{}, fmt.Errorf("%w: the device %s: %w", ErrRefused, m.name(), err)
	}
	p, err := parseProgress(k.status)
	if err != nil {
		return Local{}, err
	}
	pair := layout{table: t}.pair()
	return Local{Device: k.path(), Complete: pair, Failed: !p.alive[0] || !p.alive[1] && !t.keepLog || p.logFailed}, nil
}

// Abandon ends the mirror of a publication that is over. It ends the connections to all replicas,
// which makes the waiting I/O fail. No later publication to this node will use the mirror. While
// the witness still names this publication, Abandon fails with ErrRefused and changes nothing.
func (m *Mirror) Abandon(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, err := m.Witness.Read(ctx)
	if err != nil {
		return err
	}
	if w.Writer == m.volume.Writer {
		return fmt.Errorf("%w: the volume is still published to this node", ErrRefused)
	}
	found, err := m.current()
	if err != nil || !found {
		return err
	}
	var failed []error
	for id := range replica.ID(replica.MaxReplicas) {
		if uuid := m.volume.UUIDs[id]; uuid != "" {
			failed = append(failed, m.Release(ctx, uuid))
		}
	}
	if err := errors.Join(failed...); err != nil { // a suspend would wait for I/O below the mirror
		return fmt.Errorf("end the connections: %w", err)
	}
	if err := m.swap(m.name(), target{"error", m.sectors(), ""}); err != nil {
		return err
	}
	m.Log.Warn("the volume was published again; all I/O of the previous publication now fails")
	return nil
}
