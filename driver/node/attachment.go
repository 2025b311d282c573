package node

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/heal"
	"github.com/spdkgate/spdkgate/driver/request"
)

// An attachment describes how to connect, format and mount a volume.
type attachment struct {
	export     connect.Export
	replicated *heal.Volume // nil for other volumes; otherwise, export is zero
	fsType     string
	mayFormat  bool // whether to create a file system if the volume is empty
	mayFinish  bool // whether to repeat an interrupted mkfs

	encryption  encryption
	mkfsOptions string
	uuid        string // UUID of the file system; empty to leave it unchanged
}

// readAttachment reads the volume context and the publish context of a call. If both contain the
// same key, the value in the publish context is used, because it is newer. topology contains the
// node's labels.
func readAttachment(volumeID, node string, volume, published, topology map[string]string) (attachment, error) {
	m := maps.Clone(volume)
	if m == nil {
		m = map[string]string{}
	}
	maps.Copy(m, published)
	a := attachment{fsType: volume[request.KeyFSType], mayFinish: volume[request.KeyMayFormat] == "true"}
	var err error
	if a.encryption, err = readEncryption(volume); err != nil {
		return a, err
	}
	if a.replicated, err = readReplicated(volumeID, node, volume, published, topology); err != nil {
		return a, err
	}
	if a.replicated == nil {
		a.export, err = connect.ParseExport(m, topology)
	}
	if err != nil {
		return a, fmt.Errorf("%w: check that this driver's controller has published the volume, and that attachRequired is true in its CSIDriver", err)
	}
	a.mkfsOptions = volume[request.KeyMkfsOptions]
	if volume[request.KeyFilesystemUUID] == "volume" {
		a.uuid = cmp.Or(a.export.NSUUID, a.export.LegacyUUID)
		if a.replicated != nil {
			a.uuid = a.replicated.Name
		}
	}
	// A volume that was created as a copy is never formatted, even if the publish context allows
	// formatting. If no controller published the volume, only the volume context in its PV can
	// allow formatting.
	a.mayFormat = m[request.KeyMayFormat] == "true" && volume[request.KeyMayFormat] != "false"
	return a, nil
}
