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

// missingListeners returns the portals that the subsystem does not listen on. Listeners on portals
// of an earlier configuration remain until the subsystem is removed, because a host may have its
// only connection there.
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

// addListeners adds the listeners that sub lacks. If SPDK refuses some but not all of the
// listeners, for example because an address is not up, notListening is the reason. It sets
// foundDone if adding a listener fails but the listener exists.
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
	_ = g.Wait() // the functions return no error
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

// toleratedBeside reports whether an export with other listeners can tolerate this error, which was
// returned when a listener was added.
func toleratedBeside(err error) bool {
	return err != nil && readback.Clarifies(err) && readback.Refused(err) && spdkrpc.KindOf(err) != spdkrpc.Busy && !errors.Is(err, ErrBusy)
}

// listen adds a listener. If the target has no transport yet, because nothing has been exported,
// listen creates the transport.
func (n nvmf) listen(ctx context.Context, nqn string, at Portal) error {
	add := func() error {
		return n.rpc.NVMfSubsystemAddListener(ctx, spdkrpc.NVMfSubsystemAddListenerParams{NQN: nqn, ListenAddress: n.listenAddress(at)})
	}
	failed := add()
	if failed == nil || !readback.Clarifies(failed) {
		return failed
	}
	// Another export may have created the transport after the listener was refused, so retry even
	// if the transport already exists.
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

// ensureTransport creates the transport if it does not exist. If several calls try to create the
// transport concurrently, SPDK refuses all but one, and the refused calls then find the transport.
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
