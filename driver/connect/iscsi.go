package connect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	utilexec "k8s.io/utils/exec"

	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/operation"
)

// iscsi attaches LUN 0 of iSCSI targets. It logs in and out through iscsiadm, and reads the result
// from sysfs. It passes the target and portal to iscsiadm as a record instead of using discovery,
// because a portal may advertise addresses that this node cannot reach.
type iscsi struct {
	node *node
	host Host
	exec utilexec.Interface
	log  *slog.Logger
}

// lunWait limits how long a call waits for a session's LUN.
const lunWait = 10 * time.Second

func (i *iscsi) connect(ctx context.Context, e Export, step *operation.Step) (Device, error) {
	existing, err := i.sessions(e.IQN)
	if err != nil {
		return Device{}, err
	}
	made := false
	if len(existing) == 0 {
		if made, err = i.loginAtAny(ctx, e, step); err != nil {
			return Device{}, err
		}
	}
	d, err := i.waitForDevice(ctx, e, step)
	if err != nil && made {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if undoErr := i.disconnect(undo, e, step); undoErr != nil {
			err = errors.Join(err, fmt.Errorf("undo the session: %w", undoErr))
		}
	}
	return d, err
}

// loginAtAny logs in at the first address that works, but creates only one session, because a
// second session would be a second block device.
func (i *iscsi) loginAtAny(ctx context.Context, e Export, step *operation.Step) (made bool, err error) {
	var failures []error
	for _, p := range e.paths() {
		made, err := i.login(ctx, p, step)
		if err == nil {
			return made, nil
		}
		failures = append(failures, err)
	}
	return false, errors.Join(failures...)
}

// login creates the records that iscsiadm needs, and logs in. The interface record contains this
// host's initiator name, because the name in /etc/iscsi belongs to the node's administrator.
func (i *iscsi) login(ctx context.Context, e Export, step *operation.Step) (made bool, err error) {
	if err := e.CheckKeys(); err != nil {
		return false, err
	}
	step.Doing("asking %s for a login", e.portal())
	if err := i.mayLogIn(ctx, e); err != nil {
		return false, err
	}
	step.Doing("creating the records of the iSCSI session (iscsiadm)")
	for _, args := range [][]string{
		i.ifaceArgs("new"),
		i.ifaceArgs("update", "-n", "iface.initiatorname", "-v", i.host.IQN),
		i.recordArgs(e, "-o", "new"),
		// Only the driver logs in, when the volume is staged; the node's startup scripts must not.
		i.recordArgs(e, "-o", "update", "-n", "node.startup", "-v", "manual"),
		// By default, iscsid retries a login for two minutes.
		i.recordArgs(e, "-o", "update", "-n", "node.session.initial_login_retry_max", "-v", "2"),
		i.recordArgs(e, "-o", "update", "-n", "node.conn[0].timeo.login_timeout", "-v", "5"),
	} {
		if err := i.iscsiadm(ctx, args, exitExists); err != nil {
			return false, err
		}
	}
	if err := i.writeKeys(e); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return false, errors.Join(err, i.deleteRecord(cleanup, e))
	}
	step.Doing("logging in to %s (iscsiadm)", e.portal())
	if err := i.iscsiadm(ctx, i.recordArgs(e, "--login"), exitExists); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return false, errors.Join(i.explainLogin(e, err), i.logout(cleanup, e), i.deleteRecord(cleanup, e))
	}
	return true, nil
}

// logout ends the session with each address, and stops iscsid from trying to create one.
func (i *iscsi) logout(ctx context.Context, e Export) error {
	var failures []error
	for _, p := range e.paths() {
		failures = append(failures, i.iscsiadm(ctx, i.recordArgs(p, "--logout"), exitNoObjects, exitNoSession))
	}
	return errors.Join(failures...)
}

func (i *iscsi) explainLogin(e Export, err error) error {
	var failed *iscsiadmError
	if !errors.As(err, &failed) {
		return err
	}
	if e.Authentication == hostauth.CHAP && slices.Contains([]int{exitAuthFailed, exitLogin, exitFatalLogin}, failed.code) {
		return explainCHAP(e, failed.code, err)
	}
	switch failed.code {
	case exitTransport, exitTransportTimeout, exitPDUTimeout, exitHostNotFound, exitFatalLogin, exitLogin:
		return fmt.Errorf("%w: %s responds, but iscsid could not log in: see its log on the node (journalctl -u iscsid): %w", ErrUnreachable, e.portal(), err)
	case exitAuthFailed:
		return fmt.Errorf("%w: %s does not allow initiator %s, or requires it to authenticate: the volume must be published to this node first (%w)", ErrRefused, e.IQN, i.host.IQN, err)
	case exitDaemonComm, exitDaemonNotConnected:
		return fmt.Errorf("%w: iscsid does not respond: start it on the node (systemctl enable --now iscsid) and run the node plugin in the host's network namespace (%w)", ErrUnsupported, err)
	case exitNoTransport:
		return fmt.Errorf("%w: load the kernel module iscsi_tcp on the node (%w)", ErrUnsupported, err)
	}
	return err
}

func (i *iscsi) waitForDevice(ctx context.Context, e Export, step *operation.Step) (Device, error) {
	var d Device
	var last error
	start, rescanned := time.Now(), false
	step.Doing("waiting for LUN 0")
	inTime, err := poll(ctx, func() (bool, error) {
		if d, last = i.find(e); last == nil {
			return true, nil
		}
		if waited := time.Since(start); waited > lunWait && errors.Is(last, ErrNoNamespace) {
			return false, last
		} else if waited > lunWait/4 && !rescanned {
			rescanned = true
			return false, i.scanHosts(e)
		}
		return false, nil
	})
	if err == nil && !inTime {
		err = fmt.Errorf("%w %v: %w", timeout(ctx), step, last)
	}
	return d, err
}

func (i *iscsi) find(e Export) (Device, error) {
	sessions, err := i.sessions(e.IQN)
	if err != nil {
		return Device{}, err
	}
	if len(sessions) == 0 {
		return Device{}, fmt.Errorf("%w: this node has no session with the target", ErrNotConnected)
	}
	luns, err := i.luns(sessions)
	if err != nil {
		return Device{}, err
	}
	l, err := chooseLUN(e, luns)
	if err != nil {
		return Device{}, err
	}
	for _, s := range sessions {
		if s.name == l.session && s.state != "LOGGED_IN" {
			return Device{}, fmt.Errorf("%w: session %s is %s: check whether the target is running", ErrUnreachable, s.name, s.state)
		}
	}
	d, err := i.node.device(l.name)
	if err == nil && d.SizeBytes == 0 {
		err = fmt.Errorf("%w: %s has size 0: the target has removed the LUN", ErrNoNamespace, l.name)
	}
	return d, err
}

func (i *iscsi) disconnect(ctx context.Context, e Export, step *operation.Step) error {
	sessions, err := i.sessions(e.IQN)
	if err != nil {
		return err
	}
	if len(sessions) == 0 {
		// The record may still exist after its session has ended.
		return i.deleteRecord(ctx, e)
	}
	step.Doing("checking whether the target's LUNs are in use")
	luns, err := i.luns(sessions)
	if err != nil {
		return err
	}
	for _, l := range luns {
		err := i.node.inUse(l.name)
		if errors.Is(err, ErrBusy) && l.number != "0" {
			i.log.Info("session kept: another LUN of the target is in use", "iqn", e.IQN, "device", l.name)
			return nil
		}
		if err != nil {
			return err
		}
	}
	step.Doing("logging out of %s (iscsiadm)", e.portal())
	if err := i.logout(ctx, e); err != nil {
		return err
	}
	step.Doing("waiting until the kernel has removed the session")
	gone, err := poll(ctx, func() (bool, error) {
		left, err := i.sessions(e.IQN)
		return len(left) == 0, err
	})
	if err != nil {
		return err
	}
	if !gone {
		return fmt.Errorf("%w %v: check whether iscsid is running on the node", timeout(ctx), step)
	}
	return i.deleteRecord(ctx, e)
}

func (i *iscsi) rescan(ctx context.Context, e Export, wantBytes int64, step *operation.Step) (int64, error) {
	d, err := i.find(e)
	if err != nil || d.SizeBytes >= wantBytes {
		return d.SizeBytes, err
	}
	step.Doing("waiting for the device to grow")
	inTime, err := poll(ctx, func() (bool, error) {
		// The target reports its new size in the sense data of a later command, so the device must
		// be rescanned repeatedly.
		if err := i.rescanDevice(d); err != nil {
			return false, err
		}
		d, err = i.find(e)
		return err == nil && d.SizeBytes >= wantBytes, err
	})
	if err == nil && !inTime {
		err = fmt.Errorf("%w %v: %s has %d bytes, but %d are requested: resize the volume on the target first",
			timeout(ctx), step, d.Path, d.SizeBytes, wantBytes)
	}
	return d.SizeBytes, err
}
