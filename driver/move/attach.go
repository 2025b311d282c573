package move

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/request"
)

// publish publishes a volume to the node of the move. mayFormat reports whether the volume has
// never been used. publish uses only the authentication settings of volumeContext.
func (m Mover) publish(ctx context.Context, id, node string, volumeContext map[string]string, filesystem bool) (e connect.Export, mayFormat bool, err error) {
	published, err := m.Controller.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: id, NodeId: node, VolumeCapability: capability(filesystem), Secrets: m.Secrets,
		VolumeContext: map[string]string{hostauth.KeyMethod: volumeContext[hostauth.KeyMethod]},
	})
	if err != nil {
		return connect.Export{}, false, err
	}
	publishContext := published.GetPublishContext()
	if e, err = connect.ParseExport(publishContext, m.Topology); err != nil {
		return connect.Export{}, false, err
	}
	keys, err := hostauth.Read(e.Authentication, m.Secrets, "the Secret of the move")
	return e.WithKeys(keys), publishContext[request.KeyMayFormat] == "true", err
}

func (m Mover) unpublish(id, node string) error {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	_, err := m.Controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node, Secrets: m.Secrets})
	return err
}

// withdraw detaches a device and, if that succeeds, unpublishes the device's volume.
func (m Mover) withdraw(closeDevice func() error, id, node string) error {
	if err := closeDevice(); err != nil {
		return err
	}
	return m.unpublish(id, node)
}

// attach attaches a volume that is published to node to this machine. closeDevice detaches the
// volume; only its first call has an effect.
func (m Mover) attach(ctx context.Context, node string, e connect.Export, flag int) (d *device, closeDevice func() error, err error) {
	connector, err := m.Connector(node)
	if err != nil {
		return nil, nil, err
	}
	attached, err := connector.Connect(ctx, e)
	if err != nil {
		return nil, nil, err
	}
	disconnect := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
		defer cancel()
		return connector.Disconnect(ctx, e)
	}
	d, err = openDevice(attached.Path, flag)
	if err != nil {
		return nil, nil, errors.Join(err, disconnect())
	}
	return d, sync.OnceValue(func() error { return errors.Join(d.Close(), disconnect()) }), nil
}

// undoTimeout limits the cleanup, which runs even if the move is canceled.
const undoTimeout = time.Minute
