package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// missingListeners returns the portals on which the subsystem does not listen. Listeners on other
// portals, named by an earlier configuration, stay: a host may have its only connection there. They
// are removed with the subsystem.
func (n nvmf) missingListeners(sub *spdkrpc.NVMfSubsystem) (missing []Portal) {
	for _, p := range n.Listen {
		if sub == nil || !n.listens(sub, p) {
			missing = append(missing, p)
		}
	}
	return missing
}

func (n nvmf) listens(sub *spdkrpc.NVMfSubsystem, at Portal) bool {
	return slices.ContainsFunc(sub.ListenAddresses, func(a spdkrpc.NVMfTransportID) bool {
		return strings.EqualFold(a.Trtype, string(n.Transport)) && at.is(a.Traddr, a.Trsvcid)
	})
}

// addListeners adds the listeners that sub lacks. If SPDK refuses some of them, as it does when an
// address is not up, but not all, notListening says why. A listener that is refused but found sets
// foundDone.
func (n nvmf) addListeners(ctx context.Context, id string, sub *spdkrpc.NVMfSubsystem, inFlight int, foundDone *atomic.Bool) (notListening, err error) {
	missing := n.missingListeners(sub)
	failures := make([]error, len(missing))
	var g errgroup.Group
	g.SetLimit(inFlight)
	for i, p := range missing {
		g.Go(func() error {
			failures[i] = readback.NewStep("listen on "+p.String(), func() error { return n.listen(ctx, NQN(id), p) }, func() (bool, error) {
				foundDone.Store(true)
				now, err := n.subsystem(ctx, id)
				return err == nil && n.listens(now, p), err
			}).Run()
			return nil
		})
	}
	_ = g.Wait() // its functions return no error
	var refused []error
	for _, err := range failures {
		if toleratedBeside(err) {
			refused = append(refused, err)
		} else if err != nil {
			return nil, err
		}
	}
	if len(refused) == len(n.Listen) {
		return nil, errors.Join(refused...)
	}
	return errors.Join(refused...), nil
}

// toleratedBeside reports whether SPDK refused to listen on a portal, so that the others must
// suffice.
func toleratedBeside(err error) bool {
	return err != nil && readback.Clarifies(err) && readback.Refused(err) && spdkrpc.KindOf(err) != spdkrpc.Busy && !errors.Is(err, ErrBusy)
}

// listen adds a listener. It first creates the transport if the target has none, as for a target's
// first export.
func (n nvmf) listen(ctx context.Context, nqn string, at Portal) error {
	add := func() error {
		return n.rpc.NVMfSubsystemAddListener(ctx, spdkrpc.NVMfSubsystemAddListenerParams{NQN: nqn, ListenAddress: n.listenAddress(at)})
	}
	failed := add()
	if failed == nil || !readback.Clarifies(failed) {
		return failed
	}
	// Another export may have created the transport since the listener was refused. So adding the
	// listener is retried even if the transport exists.
	if err := n.ensureTransport(ctx); err != nil {
		return err
	}
	return add()
}

func (n nvmf) listenAddress(at Portal) spdkrpc.NVMfListenAddress {
	family := "IPv4"
	if at.isIPv6() {
		family = "IPv6"
	}
	return spdkrpc.NVMfListenAddress{Trtype: string(n.Transport), Adrfam: &family, Traddr: at.Addr, Trsvcid: &at.Port}
}

// ensureTransport creates the transport if it does not exist. Several calls may do so concurrently:
// SPDK refuses all but one, and the others find the transport by reading back.
func (n nvmf) ensureTransport(ctx context.Context) error {
	trtype := string(n.Transport)
	exists := func() (bool, error) {
		_, err := n.rpc.NVMfGetTransports(ctx, spdkrpc.NVMfGetTransportsParams{Trtype: &trtype})
		if errors.Is(err, spdkrpc.NoSuchDevice) {
			return false, nil
		}
		return err == nil, err
	}
	there, err := exists()
	if err != nil {
		return fmt.Errorf("look for transport %s: %w", trtype, err)
	}
	if there {
		return nil
	}
	return readback.NewStep("create transport "+trtype, func() error {
		return n.rpc.NVMfCreateTransport(ctx, spdkrpc.NVMfCreateTransportParams{Trtype: trtype})
	}, exists).Run()
}
