package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// The exit codes of doctor.
const (
	doctorFound  Status = 1
	doctorFailed Status = 2
)

// DoctorTargets runs spdk-csi doctor with args in the controller's pod. A nonzero exit code is
// returned as a [Status].
func (c Client) DoctorTargets(ctx context.Context, out, notes io.Writer, args ...string) error {
	printed := &counter{w: out}
	return doctorStatus(c.Run(ctx, printed, notes, slices.Concat([]string{"doctor"}, args)...), printed)
}

// doctorStatus distinguishes findings of doctor from failures of kubectl, which have the same exit
// code. Doctor prints findings to standard output; a failing kubectl prints nothing there.
func doctorStatus(err error, printed *counter) error {
	if err == doctorFound && printed.n == 0 {
		return doctorFailed
	}
	return err
}

// A counter counts the bytes written to it.
type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	return c.w.Write(p)
}

// Doctor runs spdk-csi doctor with args in the controller's pod, and sends it a list of the objects
// in Kubernetes. It reads the list after delay. By then, doctor has read the targets, so volumes
// being created are not mistaken for orphans. others contains lists from other clusters that use
// the same targets, and may be empty. Doctor returns the exit code of the command as a [Status].
func (c Client) Doctor(ctx context.Context, delay time.Duration, others []byte, out, notes io.Writer, args ...string) error {
	cmd, err := c.command(ctx, true, slices.Concat([]string{"doctor", "--volumes=-"}, args)...)
	if err != nil {
		return err
	}
	printed := &counter{w: out}
	cmd.Stdout, cmd.Stderr = printed, notes
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	reading, stop := context.WithCancel(ctx)
	listed := make(chan error, 1)
	go func() { listed <- c.writeList(reading, delay, others, in) }()
	ended := doctorStatus(asStatus(cmd.Wait()), printed)
	stop()
	if err := <-listed; err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the list of volumes could not be read, so nothing was changed: %w", err)
	}
	return ended
}

// noList is sent if the list of volumes cannot be read. The doctor command rejects this invalid
// list and changes nothing. An empty list would mean that Kubernetes has no volumes.
const noList = "the list of volumes could not be read\n"

func (c Client) writeList(ctx context.Context, delay time.Duration, others []byte, in io.WriteCloser) error {
	defer func() { _ = in.Close() }()
	wait := time.NewTimer(delay)
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
	}
	text, err := c.everything(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		_, _ = io.WriteString(in, noList)
		return err
	}
	_, _ = in.Write(slices.Concat(text, []byte("\n"), others)) // this fails if doctor has already ended; its exit code shows the reason
	return nil
}
