package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A demo runs the steps, and holds the objects that they create.
type demo struct {
	*testbed
	report *report

	freeAtStart uint64
	data        *claim
	snapshot    *csi.Snapshot
	restored    *claim
	small       *claim
	block       *claim
	sum         [sha256.Size]byte
}

// A step is one step of the demo. do returns a description of what the step has proved.
type step struct {
	name string
	do   func() (proved string, err error)
}

// steps runs steps until one fails.
func (d *demo) steps(list ...step) error {
	for _, s := range list {
		if err := d.report.step(s.name, s.do); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) setUp(ctx context.Context) error {
	d.report.title("Set-up")
	return d.steps(
		step{"simulated spdk_tgt", func() (_ string, err error) {
			d.freeAtStart, err = d.startTarget(ctx)
			return fmt.Sprintf("%s on a real UNIX socket, lvstore %s with %d free clusters", d.target.Release(), lvstore, d.freeAtStart), err
		}},
		step{"spdk-proxy", func() (string, error) {
			return "HTTPS at " + d.proxyURL + " for two users, " + csiUser + " and " + auditorUser, d.startProxy(ctx)
		}},
		step{"spdk-csi", func() (string, error) {
			if err := d.startDriver(ctx); err != nil {
				return "", err
			}
			var name string
			err := d.wait(ctx, "spdk-csi", func() error {
				info, err := csi.NewIdentityClient(d.conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
				name = info.GetName()
				return err
			})
			return name + " runs as controller and node", err
		}},
	)
}

func (d *demo) life(ctx context.Context) error {
	// Growing ext4 requires CAP_SYS_RESOURCE, which root often lacks in containers; growing xfs
	// does not.
	d.data, d.restored = d.claim("pvc-data", "xfs"), d.claim("pvc-restored", "xfs")
	d.small, d.block = d.claim("pvc-small", "ext4"), d.claim("pvc-block", "")
	d.report.title("A volume's life")
	err := d.steps(
		step{"CreateVolume", func() (string, error) {
			v, err := d.data.create(ctx, 320, nil)
			if err != nil {
				return "", err
			}
			again, err := d.data.create(ctx, 320, nil)
			if err == nil && again.GetVolumeId() != v.GetVolumeId() {
				err = fmt.Errorf("the repeated call created a second volume, %s, in addition to %s", again.GetVolumeId(), v.GetVolumeId())
			}
			return fmt.Sprintf("%d MiB; the repeated call returns the same volume", v.GetCapacityBytes()>>20), err
		}},
		step{"ControllerPublishVolume", func() (string, error) {
			if err := d.data.attach(ctx); err != nil {
				return "", err
			}
			return d.hosts(ctx, d.data)
		}},
	)
	if err != nil {
		return err
	}
	if d.canMount() {
		err = d.lifeOnANode(ctx)
	} else {
		err = d.lifeWithoutNode(ctx)
	}
	if err != nil {
		return err
	}
	if err := d.refusals(ctx); err != nil {
		return err
	}
	return d.cleanUp(ctx)
}

// hosts checks that only this node is allowed to connect to a volume's subsystem.
func (d *demo) hosts(ctx context.Context, c *claim) (string, error) {
	found, err := d.local.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{NQN: new(c.publish["nqn"])})
	if err != nil {
		return "", err
	}
	s := found[0]
	node := connect.HostOf(nodeName)
	for _, h := range s.Hosts {
		if h.NQN != node.NQN && h.NQN != node.Multipath().NQN {
			return "", fmt.Errorf("subsystem %s allows host %s, which is not this node", s.NQN, h.NQN)
		}
	}
	if s.AllowAnyHost || len(s.Hosts) != 2 {
		return "", fmt.Errorf("subsystem %s allows %d hosts, any host: %t", s.NQN, len(s.Hosts), s.AllowAnyHost)
	}
	return "exported only to this node's two host NQNs (with and without native multipath)", nil
}

// lifeWithoutNode runs the steps that do not need root.
func (d *demo) lifeWithoutNode(ctx context.Context) error {
	for _, name := range []string{"NodeStageVolume", "NodePublishVolume", "grow while mounted", "ext4", "raw block"} {
		d.report.skip(name, "mounts and loop devices require root")
	}
	return d.steps(
		d.takeSnapshot(ctx),
		step{"ControllerExpandVolume", func() (string, error) {
			size, err := d.data.expand(ctx, 448)
			return fmt.Sprintf("%d MiB", size>>20), err
		}},
		step{"restore", func() (string, error) {
			v, err := d.restore(ctx)
			return fmt.Sprintf("a second volume from the snapshot, larger than it: %d MiB", v.GetCapacityBytes()>>20), err
		}},
	)
}

func (d *demo) takeSnapshot(ctx context.Context) step {
	return step{"CreateSnapshot", func() (string, error) {
		r, err := csi.NewControllerClient(d.conn).CreateSnapshot(ctx, &csi.CreateSnapshotRequest{
			SourceVolumeId: d.data.volume.GetVolumeId(), Name: "snapshot-1", Secrets: d.secrets(),
		})
		d.snapshot = r.GetSnapshot()
		return fmt.Sprintf("ready to use: %t", d.snapshot.GetReadyToUse()), err
	}}
}

func (d *demo) restore(ctx context.Context) (*csi.Volume, error) {
	return d.restored.create(ctx, 384, &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: d.snapshot.GetSnapshotId()},
	}})
}

func (d *demo) lifeOnANode(ctx context.Context) error {
	file := func(c *claim) string { return filepath.Join(c.target(), "hello") }
	return d.steps(
		step{"NodeStageVolume", func() (string, error) {
			return "connected, empty, therefore formatted with xfs, mounted", d.data.stage(ctx)
		}},
		step{"NodePublishVolume", func() (string, error) {
			if err := d.data.mount(ctx); err != nil {
				return "", err
			}
			content := make([]byte, 8<<20)
			_, _ = rand.Read(content)
			d.sum = sha256.Sum256(content)
			return "8 MiB written to a file and synced", writeSynced(file(d.data), content)
		}},
		d.takeSnapshot(ctx),
		step{"grow while mounted", func() (string, error) {
			before, after, err := d.data.grow(ctx, 448)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("filesystem %d → %d MiB, file intact", before>>20, after>>20), d.verify(file(d.data))
		}},
		step{"restore", func() (string, error) {
			if _, err := d.restore(ctx); err != nil {
				return "", err
			}
			if err := errors.Join(d.restored.attach(ctx), d.restored.stage(ctx), d.restored.mount(ctx)); err != nil {
				return "", err
			}
			size, err := fsBytes(d.restored.target())
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("a second volume from the snapshot has the file; filesystem grown to %d MiB", size>>20), d.verify(file(d.restored))
		}},
		step{"ext4", func() (string, error) {
			if _, err := d.small.create(ctx, 16, nil); err != nil {
				return "", err
			}
			if err := errors.Join(d.small.attach(ctx), d.small.stage(ctx), d.small.mount(ctx)); err != nil {
				return "", err
			}
			return "a small volume: formatted, mounted, written", writeSynced(file(d.small), []byte("hello"))
		}},
		step{"raw block", func() (string, error) {
			if _, err := d.block.create(ctx, 32, nil); err != nil {
				return "", err
			}
			if err := errors.Join(d.block.attach(ctx), d.block.stage(ctx), d.block.mount(ctx)); err != nil {
				return "", err
			}
			return "unformatted device in the pod; data written and read back", readBack(d.block.target())
		}},
	)
}

func (d *demo) refusals(ctx context.Context) error {
	d.report.title("Refusals")
	if d.restored.volume != nil {
		err := d.report.step("a snapshot in use", func() (string, error) {
			err := d.deleteSnapshot(ctx)
			if status.Code(err) != codes.FailedPrecondition {
				return "", fmt.Errorf("its deletion was not refused: %w", err)
			}
			return "FailedPrecondition: two volumes still need it; nothing was changed", nil
		})
		if err != nil {
			return err
		}
	}
	return d.steps(
		step{"a user without the role", func() (string, error) {
			auditor, err := d.as(auditorUser)
			if err != nil {
				return "", err
			}
			err = auditor.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: lvstore + "/pvc-data"})
			return refused(err)
		}},
		step{"a wrong password", func() (string, error) {
			correct := d.passwords[auditorUser]
			d.passwords[auditorUser] = "guess"
			client, err := d.as(auditorUser)
			d.passwords[auditorUser] = correct
			if err != nil {
				return "", err
			}
			_, err = client.SpdkGetVersion(ctx)
			return refused(err)
		}},
	)
}

func refused(err error) (string, error) {
	if !errors.Is(err, spdkrpc.Denied) {
		return "", fmt.Errorf("the call was not denied: %w", err)
	}
	return err.Error(), nil
}

func (d *demo) cleanUp(ctx context.Context) error {
	d.report.title("Clean-up")
	return d.steps(
		step{"everything deleted", func() (string, error) {
			n, err := d.remove(ctx)
			return fmt.Sprintf("%d volumes: unpublished, unstaged, unexported, deleted", n), err
		}},
		step{"nothing is left", func() (string, error) {
			free, err := d.freeClusters(ctx)
			if err != nil {
				return "", err
			}
			volumes, err := d.local.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{LvsName: new(lvstore)})
			if err != nil {
				return "", err
			}
			if free != d.freeAtStart || len(volumes) > 0 {
				return "", fmt.Errorf("%d of %d clusters are free and %d volumes exist", free, d.freeAtStart, len(volumes))
			}
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if err == nil && strings.Contains(string(mounts), d.dir) {
				err = fmt.Errorf("something under %s is still mounted", d.dir)
			}
			return fmt.Sprintf("%d clusters are free, as at the start", free), err
		}},
	)
}

// remove deletes all volumes, then the snapshot, and returns the number of volumes. The snapshot is
// last, because the data volume has grown since. The proxy refuses to delete a snapshot below a
// larger volume unless the metadata shows that this is safe, and the simulated target has none.
func (d *demo) remove(ctx context.Context) (n int, err error) {
	for _, c := range []*claim{d.block, d.small, d.restored, d.data} {
		if c == nil || c.volume == nil {
			continue
		}
		if failed := c.remove(ctx); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", c.name, failed))
			continue // a mount of another volume must not be left behind
		}
		n++
	}
	if d.snapshot != nil {
		err = errors.Join(err, d.deleteSnapshot(ctx))
	}
	return n, err
}

func (d *demo) deleteSnapshot(ctx context.Context) error {
	_, err := csi.NewControllerClient(d.conn).DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: d.snapshot.GetSnapshotId(), Secrets: d.secrets()})
	return err
}

func (d *demo) verify(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if sha256.Sum256(content) != d.sum {
		return fmt.Errorf("%s does not contain what was written", path)
	}
	return nil
}

func writeSynced(path string, content []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// readBack writes data to a device, and reads the data back.
func readBack(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	want := []byte(rand.Text())
	_, err = f.WriteAt(want, 1<<20)
	err = errors.Join(err, f.Sync())
	got := make([]byte, len(want))
	_, readErr := f.ReadAt(got, 1<<20)
	if err = errors.Join(err, readErr, f.Close()); err == nil && !bytes.Equal(got, want) {
		err = errors.New("the device does not contain what was written")
	}
	return err
}
