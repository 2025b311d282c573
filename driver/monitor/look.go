package monitor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/operation"
)

// look checks the connection, device, mapping and mounts of one volume.
func (m *Monitor) look(ctx context.Context, v Volume, mounts mount.Table) State {
	s := State{Volume: v}
	if v.Err != nil {
		s.add(Unknown, "", v.Err.Error())
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	m.lookAtPaths(ctx, &s)
	if v.Path != "" {
		m.lookAtFilesystem(ctx, &s, mounts)
	}
	for _, target := range v.Targets {
		if at, err := mounts.At(target); err == nil && at.Fault() == mount.DeviceGone {
			s.add(DeadMount, target, fmt.Sprintf("the device below %s was removed because its target did not respond for too long: delete the pod, so that the volume is published again", target))
		}
	}
	return s
}

func (m *Monitor) lookAtPaths(ctx context.Context, s *State) {
	p, err := m.connector.Paths(ctx, s.Volume.Export)
	switch {
	case isDeadline(err):
		s.add(Hanging, "", fmt.Sprintf("the kernel does not report the state of the connection: check the node's kernel log (%v)", err))
		return
	case err != nil:
		s.add(Unknown, "", fmt.Sprintf("the state of the connection cannot be read: %v", err))
		return
	}
	s.Live, s.Expected, s.givenUp = p.Live(), p.Expected, p.GivenUp
	switch {
	case len(p.All) == 0:
		s.add(NotConnected, "", "no connection is left: the kernel has given up on the target. The node reconnects when the target responds; delete the pods that used the volume")
	case s.Live == 0:
		s.add(Connecting, "", fmt.Sprintf("the target does not respond, and I/O is waiting for it: check whether the target is running (%s)", describe(p)))
	case s.Live < s.Expected:
		s.add(PathsLost, "", fmt.Sprintf("%d of %d paths work: check the target's other addresses and the network (%s)", s.Live, s.Expected, describe(p)))
	}
	switch {
	case s.Live == 0: // in that case, the device shows nothing more
	case errors.Is(p.NoDevice, connect.ErrNoNamespace):
		s.add(NoNamespace, "", fmt.Sprintf("the target responds, but does not have the volume there: %v", p.NoDevice))
	case p.NoDevice != nil:
		s.add(Unknown, "", fmt.Sprintf("the volume's device cannot be found: %v", p.NoDevice))
	case s.Volume.OnAnother != nil:
		m.lookAtMapping(ctx, s, p.Device.Path)
	}
}

// lookAtMapping checks that a mapping belongs to the volume's current device, because a mapping can
// outlive a removed device.
func (m *Monitor) lookAtMapping(ctx context.Context, s *State, device string) {
	dead, err := operation.Share(ctx, &m.reads, "mapping of "+s.Volume.ID, func() (bool, error) { return s.Volume.OnAnother(device) })
	switch {
	case isDeadline(err):
		s.add(Hanging, "", fmt.Sprintf("the kernel does not report the state of the volume's mapping: check the node's kernel log (%v)", err))
	case err != nil:
		s.add(Unknown, "", fmt.Sprintf("the state of the volume's mapping cannot be read: %v", err))
	case dead:
		s.add(DeadMount, "", "the device below the volume's mapping was removed because its target did not respond for too long: delete the pods that use the volume, so that it is published again")
	}
}

func describe(p connect.Paths) string {
	all := make([]string, len(p.All))
	for i, path := range p.All {
		all[i] = path.String()
	}
	if p.GivenUp > 0 {
		all = append(all, fmt.Sprintf("%d abandoned by the kernel", p.GivenUp))
	}
	return strings.Join(all, "; ")
}

// faults maps each mount fault to a kind of finding and a remedy.
var faults = map[mount.Fault]struct {
	kind Kind
	text string
}{
	mount.DeviceGone:         {DeadMount, "the device below %s was removed because its target did not respond for too long: delete the pods that use the volume, so that it is published again"},
	mount.ShutDown:           {ShutDown, "the kernel shut the file system at %s down after errors: delete the pods that use the volume, so that it is checked and published again"},
	mount.ReadOnlyAfterError: {ReadOnly, "the kernel made the file system at %s read-only after errors: delete the pods that use the volume, so that it is checked and published again"},
}

func (m *Monitor) lookAtFilesystem(ctx context.Context, s *State, mounts mount.Table) {
	path := s.Volume.Path
	at, err := mounts.At(path)
	switch {
	case errors.Is(err, mount.ErrNotMounted):
		s.add(NotMounted, path, fmt.Sprintf("nothing is mounted at %s, although the volume is staged there: delete the pods that use the volume, so that it is published again", path))
		return
	case err != nil:
		s.add(Unknown, path, fmt.Sprintf("the mount at %s cannot be read: %v", path, err))
		return
	}
	if f, ok := faults[at.Fault()]; ok {
		s.add(f.kind, path, fmt.Sprintf(f.text, path))
		return
	}
	if s.Live == 0 {
		return // a file system may hang if its device does not respond, which is already reported
	}
	switch err := m.mounter.Probe(ctx, at); {
	case isDeadline(err):
		s.add(Hanging, path, fmt.Sprintf("the file system at %s does not respond: check the node's kernel log (%v)", path, err))
	case err != nil:
		s.add(ShutDown, path, fmt.Sprintf("the file system at %s fails: delete the pods that use the volume, so that it is checked and published again (%v)", path, err))
	}
}

func isDeadline(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
