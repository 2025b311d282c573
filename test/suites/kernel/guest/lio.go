package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/driver/connect"
)

// scsiTarget is LIO with volumes in files on a tmpfs. LIO reads the size of a file only once, but
// rereads the size of a block device each time, so each file is attached to a loop device.
type scsiTarget struct {
	configfs
	made map[string]string // IQN by volume
	loop map[string]string // device by volume
}

func newSCSITarget() *scsiTarget {
	return &scsiTarget{configfs: configfs{root: "/sys/kernel/config/target"}, made: make(map[string]string), loop: make(map[string]string)}
}

func (t *scsiTarget) make(_ context.Context, volume string, bytes int64, h connect.Host) (map[string]string, error) {
	if len(t.made) == 0 {
		if err := errors.Join(mountConfigfs(), modprobe("loop", "target_core_mod", "target_core_file", "iscsi_target_mod")); err != nil {
			return nil, err
		}
		t.dir("iscsi")
	}
	id := uuid.NewString()
	iqn := "iqn.2026-11.io.spdkgate.test:" + volume
	t.made[volume] = iqn
	file := "/tmp/" + volume
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, bytes)); err != nil {
		return nil, err
	}
	device, err := run("losetup", "--find", "--show", file)
	if err != nil {
		return nil, err
	}
	t.loop[volume] = device
	store, group := "core/fileio_0/"+volume, "iscsi/"+iqn+"/tpgt_1"
	t.dir(store)
	t.set(store+"/control", fmt.Sprintf("fd_dev_name=%s,fd_dev_size=%d", device, bytes))
	t.set(store+"/wwn/vpd_unit_serial", id)
	t.set(store+"/enable", "1")
	t.dir(group + "/lun/lun_0")
	t.link(group+"/lun/lun_0/"+volume, store)
	t.dir(group + "/np/127.0.0.1:3260")
	t.set(group+"/attrib/authentication", "0")
	t.set(group+"/attrib/generate_node_acls", "0")
	t.dir(group + "/acls/" + h.IQN)
	t.dir(group + "/acls/" + h.IQN + "/lun_0")
	t.link(group+"/acls/"+h.IQN+"/lun_0/"+volume, group+"/lun/lun_0")
	t.set(group+"/enable", "1")
	return map[string]string{
		connect.KeyTargetType: "iscsi", connect.KeyTargetAddr: "127.0.0.1", connect.KeyTargetPort: "3260",
		connect.KeyIQN: iqn, connect.KeyNSUUID: id, connect.KeyLvolSize: fmt.Sprint(bytes),
	}, t.err
}

func (t *scsiTarget) resize(_ context.Context, volume string, bytes int64) error {
	err := os.Truncate("/tmp/"+volume, bytes)
	if err == nil {
		_, err = run("losetup", "--set-capacity", t.loop[volume])
	}
	return err
}

func (t *scsiTarget) remove(_ context.Context, volume string) error {
	group := "iscsi/" + t.made[volume] + "/tpgt_1"
	t.set(group+"/enable", "0")
	acls, err := os.ReadDir(filepath.Join(t.root, group, "acls"))
	for _, a := range acls {
		acl := group + "/acls/" + a.Name()
		t.configfs.remove(acl + "/lun_0/" + volume)
		t.configfs.remove(acl + "/lun_0")
		t.configfs.remove(acl)
	}
	for _, path := range []string{
		group + "/lun/lun_0/" + volume, group + "/lun/lun_0", group + "/np/127.0.0.1:3260", group,
		"iscsi/" + t.made[volume], "core/fileio_0/" + volume,
	} {
		t.configfs.remove(path)
	}
	_, loopErr := run("losetup", "--detach", t.loop[volume])
	delete(t.made, volume)
	return errors.Join(err, t.err, loopErr, os.Remove("/tmp/"+volume))
}
