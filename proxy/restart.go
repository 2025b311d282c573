package proxy

import (
	"sync"

	"github.com/spdkgate/spdkgate/proxy/keys"
	"github.com/spdkgate/spdkgate/proxy/persist"
)

// restart holds what a restarted target needs: its saved configuration and its keys. Members
// that the configuration does not enable are nil.
type restart struct {
	saver  *persist.Saver
	folder *persist.Folder
	keys   *keys.Keys

	stopOnce sync.Once
	stop     func()
}
