package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// nodeName returns a name of realistic length, such as those of cloud nodes, because each
// publication and each list contains the names.
func nodeName(i int) string {
	return fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i>>16, i>>8&255, i&255)
}

// publish returns a call that publishes volume i to node first + i modulo count.
func (c *controller) publish(kind string, first, count int) func(context.Context, int) (string, error) {
	return func(ctx context.Context, i int) (string, error) {
		id, err := c.id(kind, i)
		if err != nil {
			return "", err
		}
		_, err = c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: nodeName(first + i%count), VolumeCapability: capability})
		return "", err
	}
}

// unpublish is like publish, but unpublishes volumes.
func (c *controller) unpublish(kind string, first, count int) func(context.Context, int) (string, error) {
	return func(ctx context.Context, i int) (string, error) {
		id, err := c.id(kind, i)
		if err != nil {
			return "", err
		}
		_, err = c.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: nodeName(first + i%count)})
		return "", err
	}
}

// move unpublishes the volumes from the first nodes, and publishes them to the remaining nodes, as
// when nodes are drained.
func (c *controller) move(kind string, drained, nodes int) func(context.Context, int) (string, error) {
	from, to := c.unpublish(kind, 0, drained), c.publish(kind, drained, nodes-drained)
	return func(ctx context.Context, i int) (string, error) {
		if _, err := from(ctx, i); err != nil {
			return "", err
		}
		return to(ctx, i)
	}
}

// fence returns a call that runs the command for cutting a node off from all storage servers.
func (c *controller) fence(node int) func(context.Context, int) (string, error) {
	return func(ctx context.Context, _ int) (string, error) {
		cmd := exec.CommandContext(ctx, filepath.Join(c.dir, "spdk-csi"), "fence", "--node", nodeName(node), "--yes")
		cmd.Env = append(os.Environ(), c.env...)
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return fmt.Sprintf("%d exports closed", strings.Count(string(out), ": remove host ")), err
	}
}
