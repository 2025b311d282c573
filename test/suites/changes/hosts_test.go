package changes

import (
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// inFlight is the number of commands that are in flight for a volume. On a busy machine, a command
// to a namespace of another target takes tens of milliseconds, because each target has to be
// scheduled.
const inFlight = 8

// hosts are connections to the same export. Each connection executes one command at a time.
type hosts []*initiator.Device

func connect(t initiator.Target) (hosts, error) {
	h := make(hosts, inFlight)
	var g errgroup.Group
	for i := range h {
		g.Go(func() (err error) { h[i], err = initiator.Connect(t); return err })
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// run executes commands, up to inFlight at once, and starts them in the given order.
func (h hosts) run(commands []func(d *initiator.Device) error) error {
	next := make(chan func(d *initiator.Device) error, len(commands))
	for _, command := range commands {
		next <- command
	}
	close(next)
	var g errgroup.Group
	for _, d := range h {
		g.Go(func() error {
			for command := range next {
				if err := command(d); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (h hosts) close() error {
	var errs []error
	for _, d := range h {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(errs...)
}
