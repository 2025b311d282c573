package connect

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	utilexec "k8s.io/utils/exec"
)

// Exit codes of iscsiadm (open-iscsi, include/iscsi_err.h).
const (
	exitNoSession          = 2
	exitTransport          = 4
	exitLogin              = 5
	exitTransportTimeout   = 8
	exitPDUTimeout         = 11
	exitNoTransport        = 12
	exitExists             = 15
	exitDaemonComm         = 18
	exitFatalLogin         = 19
	exitDaemonNotConnected = 20
	exitNoObjects          = 21
	exitHostNotFound       = 23
	exitAuthFailed         = 24
)

// exitNotInstalled is the exit code of shells and env for a missing program. In a container, a
// wrapper runs the node's iscsiadm through these programs.
const exitNotInstalled = 127

// iface is the name of the interface record that contains this host's initiator name.
const iface = "spdkgate"

// iscsiadmError reports a failed run of iscsiadm. It does not contain the arguments, which may
// include secrets.
type iscsiadmError struct {
	code   int
	output string
}

func (e *iscsiadmError) Error() string {
	return fmt.Sprintf("iscsiadm: exit code %d: %s", e.code, e.output)
}

// iscsiadm runs iscsiadm. The exit codes in accepted are not failures.
func (i *iscsi) iscsiadm(ctx context.Context, args []string, accepted ...int) error {
	out, err := i.exec.CommandContext(ctx, "iscsiadm", args...).CombinedOutput()
	var exit utilexec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w: iscsiadm was stopped at the deadline (%w)", timeout(ctx), err)
	case errors.As(err, &exit) && exit.Exited():
		if slices.Contains(accepted, exit.ExitStatus()) {
			return nil
		}
		if exit.ExitStatus() == exitNotInstalled {
			return fmt.Errorf("%w: the node has no iscsiadm: install open-iscsi on it (%s)", ErrUnsupported, strings.TrimSpace(string(out)))
		}
		return &iscsiadmError{code: exit.ExitStatus(), output: strings.TrimSpace(string(out))}
	case notInstalled(err):
		return fmt.Errorf("%w: iscsiadm is not installed: install open-iscsi (%w)", ErrUnsupported, err)
	}
	return fmt.Errorf("run iscsiadm: %w", err)
}

func notInstalled(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, utilexec.ErrExecutableNotFound)
}

func (i *iscsi) ifaceArgs(operation string, more ...string) []string {
	return append([]string{"-m", "iface", "-I", iface, "-o", operation}, more...)
}

func (i *iscsi) recordArgs(e Export, more ...string) []string {
	return append([]string{"-m", "node", "-T", e.IQN, "-p", e.portal(), "-I", iface}, more...)
}

// deleteRecord deletes a target's records, one for each address. If iscsiadm is not installed,
// there are no records.
func (i *iscsi) deleteRecord(ctx context.Context, e Export) error {
	for _, p := range e.paths() {
		err := i.iscsiadm(ctx, i.recordArgs(p, "-o", "delete"), exitNoObjects)
		if errors.Is(err, ErrUnsupported) {
			return nil
		}
		if failed := (*iscsiadmError)(nil); errors.As(err, &failed) {
			// The first login creates the interface record. Without the interface record, iscsiadm
			// does not look for the target's records.
			if newErr := i.iscsiadm(ctx, i.ifaceArgs("new"), exitExists); newErr != nil {
				return errors.Join(err, newErr)
			}
			err = i.iscsiadm(ctx, i.recordArgs(p, "-o", "delete"), exitNoObjects)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
