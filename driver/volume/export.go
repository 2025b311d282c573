package volume

import (
	"context"
	"errors"
	"fmt"
)

// Transport is how a target exports its volumes.
type Transport string

// The transports, as SPDK calls them.
const (
	TCP   Transport = "TCP"
	RDMA  Transport = "RDMA"
	ISCSI Transport = "iSCSI"
)

// A Host is a node as targets know it.
type Host struct {
	NQN string // NVMe host NQN
	// Multipath is the NQN as which the node connects where it can be made to hold I/O back; empty: none.
	Multipath string
	IQN       string // iSCSI initiator name
}

// NQN is the name of the subsystem that exports a volume: spdk-csi's, so that its volumes go on working.
func NQN(id string) string { return "nqn.2020-04.io.spdk.csi:uuid:" + id }

// IQN is the name of the iSCSI target that exports a volume, likewise.
func IQN(id string) string { return "iqn.2016-06.io.spdk:" + id }

// An exporter makes volumes reachable over one transport. All methods read before and after they change something.
type exporter interface {
	// withdraw takes the admission of a host back, of all hosts if h is nil, and removes the export if nobody is left.
	withdraw(ctx context.Context, id string, h *Host) error
	// retract removes an export that nobody is admitted to; ErrInUse if somebody is.
	retract(ctx context.Context, id string) error
	// exported tells whether there is an export of the volume.
	exported(ctx context.Context, id string) (bool, error)
}

func (s *Service) exporter() exporter {
	if s.Transport == ISCSI {
		return iscsi{s}
	}
	return nvmf{s}
}

// Export makes a volume reachable for one host. It refuses while another host is admitted or connected. An export that
// spdk-csi made, open to every host, is taken over.
func (s *Service) Export(ctx context.Context, id string, h Host) (Volume, error) {
	v, err := s.GetVolume(ctx, id)
	if err != nil {
		return Volume{}, err
	}
	if s.Transport == ISCSI {
		err = iscsi{s}.admit(ctx, id, h)
	} else {
		v.Multipath, err = nvmf{s}.admit(ctx, id, h)
	}
	if err != nil {
		return Volume{}, fmt.Errorf("target %s: export %s: %w", s.Name, v, err)
	}
	return v, nil
}

// Unexport ends what Export began, for one host, or for all if h is nil. Its connections are cut. It succeeds when there
// is nothing to end, even if the volume is gone.
func (s *Service) Unexport(ctx context.Context, id string, h *Host) error {
	if err := s.exporter().withdraw(ctx, id, h); err != nil {
		return fmt.Errorf("target %s: unexport volume %s: %w", s.Name, id, err)
	}
	return nil
}

// retract removes what is left of a volume's export before the volume is deleted.
func (s *Service) retract(ctx context.Context, id string) error {
	if err := s.exporter().retract(ctx, id); err != nil {
		return fmt.Errorf("target %s: delete volume %s: %w", s.Name, id, err)
	}
	return nil
}

// A step is a change, and the question whether it is done.
type step struct {
	what string
	do   func() error
	// done reads back; it is asked only when do failed, because then anybody may have done it, or nobody.
	done func() (bool, error)
}

// run does a step. What it answers comes from reading back: targets of different releases fail differently, or not at
// all, when a thing is there already, and a lost reply says nothing.
func (st step) run() error {
	failed := st.do()
	if failed == nil {
		return nil
	}
	if readable(failed) {
		if done, err := st.done(); err == nil && done {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", st.what, failed)
}

func runAll(steps []step) error {
	for _, st := range steps {
		if err := st.run(); err != nil {
			return err
		}
	}
	return nil
}

var errNotExported = errors.New("not exported")
