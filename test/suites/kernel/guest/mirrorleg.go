package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/mirror"
)

// A mirrorLeg is a device above an NVMe namespace on a file. The test can make the device fail.
type mirrorLeg struct {
	name, namespace string
	device          string
}

func (l *mirrorLeg) file() string   { return "/tmp/replica-" + l.name }
func (l *mirrorLeg) sectors() int64 { return (mirror.HeadBytes + mirroredBytes) / 512 }
func (l *mirrorLeg) healthy() string {
	return fmt.Sprintf("0 %d linear %s 0", l.sectors(), l.namespace)
}

func (l *mirrorLeg) create(ctx context.Context, t *nvmeTarget, n node) error {
	m, err := t.make(ctx, "replica-"+l.name, l.sectors()*512, n.host)
	if err != nil {
		return err
	}
	e, err := connect.ParseExport(m, nil)
	if err != nil {
		return err
	}
	d, err := n.Connect(ctx, e)
	if err != nil {
		return err
	}
	l.namespace = d.Path
	if _, err := run("dmsetup", "create", "--noudevsync", "replica-"+l.name, "--table", l.healthy()); err != nil {
		return err
	}
	minor, err := run("dmsetup", "info", "-c", "--noheadings", "-o", "minor", "replica-"+l.name)
	l.device = "/dev/dm-" + minor
	return err
}

// become replaces the device's table.
func (l *mirrorLeg) become(table string) error {
	name := "replica-" + l.name
	_, err := run("dmsetup", "load", name, "--table", table)
	if err == nil {
		_, err = run("dmsetup", "suspend", "--noflush", "--nolockfs", name)
	}
	if err == nil {
		_, err = run("dmsetup", "resume", "--noudevsync", name)
	}
	return err
}

func (l *mirrorLeg) fail() error { return l.become(fmt.Sprintf("0 %d error", l.sectors())) }

// failsDuringASuspend suspends the mirror while this replica does not respond, and resumes it after
// the replica has failed. No write may fail: the kernel sends the failed writes to the next table.
func (l *mirrorLeg) failsDuringASuspend(ctx context.Context) (string, error) {
	suspend := func(name string) error {
		_, err := run("dmsetup", "suspend", "--noflush", "--nolockfs", name)
		return err
	}
	const device = "spdkmirror-t0:mirrored"
	if err := suspend("replica-" + l.name); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- suspend(device) }()
	select {
	case err := <-ended:
		return "", fmt.Errorf("the suspend has not waited for the replica: %w", err)
	case <-time.After(3 * time.Second):
	}
	if err := l.fail(); err != nil {
		return "", err
	}
	select {
	case err := <-ended:
		if err != nil {
			return "", err
		}
	case <-ctx.Done():
		return "", ctx.Err()
	}
	_, err := run("dmsetup", "resume", "--noudevsync", device)
	return "", err
}

// data reads the volume's data on a replica.
func (l *mirrorLeg) data() ([]byte, error) {
	all, err := os.ReadFile(l.file())
	if err != nil {
		return nil, err
	}
	return all[mirror.HeadBytes:], nil
}

// put changes a block of the volume's data on one replica only.
func (l *mirrorLeg) put(at int64, value byte) error {
	f, err := os.OpenFile(l.file(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{value}, blockBytes), mirror.HeadBytes+at)
	return errors.Join(err, f.Close())
}
