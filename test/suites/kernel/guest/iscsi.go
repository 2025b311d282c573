package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/driver/connect"
)

// iscsi is the scenario for the iSCSI connector.
func (s *scenario) iscsi() (err error) {
	defer s.end(&err)
	n, err := newNode("kernel-test")
	if err != nil {
		return err
	}
	intruder, err := newNode("intruder")
	if err != nil {
		return err
	}
	v := s.makeVolume(n, "ext4", 320*mib, "ext4")
	s.step("without iscsid", func(ctx context.Context) (string, error) {
		_, err := v.Connect(ctx, v.export)
		return refusal(err, connect.ErrUnsupported)
	})
	s.step("start iscsid", func(context.Context) (string, error) { return "", startISCSID() })
	s.step("not connected yet", v.disconnect)
	refused := func(name string, n node, change func(e *connect.Export), kind error) {
		s.step(name, func(ctx context.Context) (string, error) {
			e := v.export
			change(&e)
			_, err := n.Connect(ctx, e)
			detail, err := refusal(err, kind)
			return detail, errors.Join(err, noSessions())
		})
	}
	refused("host not allowed", intruder, func(*connect.Export) {}, connect.ErrRefused)
	refused("wrong IQN", v.node, func(e *connect.Export) { e.IQN += "-wrong" }, connect.ErrNoSubsystem)
	refused("wrong port", v.node, func(e *connect.Export) { e.Port = "1" }, connect.ErrUnreachable)
	refused("another volume's LUN", v.node, func(e *connect.Export) { e.NSUUID = uuid.NewString() }, connect.ErrNoNamespace)
	v.life(640 * mib)
	v.removeVolume()

	x := s.makeVolume(n, "xfs", 320*mib, "xfs")
	x.life(640 * mib)
	x.removeVolume()

	b := s.makeVolume(n, "block", 64*mib, "")
	b.block()
	b.removeVolume()
	s.step("no sessions and records are left", func(context.Context) (string, error) { return "", noSessions() })
	return nil
}

// startISCSID loads the modules that open-iscsi's daemon needs, and starts the daemon, as systemd
// and udev do on a node.
func startISCSID() error {
	if err := modprobe("iscsi_tcp", "sd_mod"); err != nil {
		return err
	}
	const name = "InitiatorName=iqn.1993-08.org.debian:01:the-nodes-own\n"
	if err := os.WriteFile("/etc/iscsi/initiatorname.iscsi", []byte(name), 0o600); err != nil {
		return err
	}
	daemon := exec.Command("iscsid", "--foreground", "--no-pid-file")
	daemon.Stdout, daemon.Stderr = os.Stdout, os.Stderr
	return daemon.Start()
}

func noSessions() error {
	var left []string
	for _, pattern := range []string{"/sys/class/iscsi_session/session*", "/etc/iscsi/nodes/*", "/var/lib/iscsi/nodes/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		left = append(left, found...)
	}
	if len(left) > 0 {
		return fmt.Errorf("left behind: %v", left)
	}
	return nil
}
