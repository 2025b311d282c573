package node

import (
	"fmt"
	"maps"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/request"
)

// An attachment is what a node needs to know of a volume.
type attachment struct {
	export    connect.Export
	fsType    string
	mayFormat bool // if it is empty
	mayFinish bool // if an earlier formatting was cut off
}

// readAttachment reads the contexts of a call. The publish context, which is younger, wins.
func readAttachment(remembered, published map[string]string) (attachment, error) {
	m := maps.Clone(remembered)
	if m == nil {
		m = map[string]string{}
	}
	maps.Copy(m, published)
	a := attachment{fsType: remembered[request.KeyFSType], mayFinish: remembered[request.KeyMayFormat] == "true"}
	var err error
	if a.export, err = connect.ParseExport(m); err != nil {
		return a, fmt.Errorf("%w: check that this driver's controller has published the volume, and that attachRequired is true in its CSIDriver", err)
	}
	// What was made from a copy stays one; of a volume that no controller published, only its PV can tell.
	a.mayFormat = m[request.KeyMayFormat] == "true" && remembered[request.KeyMayFormat] != "false"
	return a, nil
}
