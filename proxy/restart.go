package proxy

import (
	"sync"

	"github.com/spdkgate/spdkgate/proxy/keys"
	"github.com/spdkgate/spdkgate/proxy/persist"
)

// What brings a restarted target back: its saved configuration, and its keys.
// Each is nil where the configuration does without.
type restart struct {
	saver  *persist.Saver
	folder *persist.Folder
	keys   *keys.Keys

	stopOnce sync.Once
	stop     func()
}
