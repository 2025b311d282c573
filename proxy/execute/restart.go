package execute

import (
	"context"
	"log/slog"
	"sync"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/keys"
	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// restart contains the parts of the proxy that prepare for a restart of the target by saving its
// configuration and its keys. A field is nil unless the proxy's configuration enables it.
type restart struct {
	saver  *persist.Saver
	folder *persist.Folder
	keys   *keys.Keys

	stopOnce sync.Once
	stop     func()
}

// newRestart opens the saved configuration and the keys, if the configuration enables them. connect
// connects to the target's running process.
func newRestart(c *config.Config, schema *rpcschema.Document, log *slog.Logger, connect func(context.Context) (persist.Target, error)) (*restart, error) {
	r := &restart{stop: func() {}}
	var err error
	switch k := c.Target.Keys; {
	case k.Socket != "":
		r.keys = keys.New(keys.Keeper{Socket: k.Socket})
	case k.Dir != "":
		folder, err := keys.OpenFolder(k.Dir)
		if err != nil {
			return nil, err
		}
		r.keys = keys.New(folder)
	}
	if c.Target.Save.Dir == "" {
		return r, nil
	}
	if r.folder, err = persist.OpenFolder(c.Target.Save.Dir, c.Target.Save.Keep); err != nil {
		return nil, err
	}
	r.saver = persist.New(persist.Options{
		Folder: r.folder, Schema: schema, Log: log, Target: connect, DisableAutoExamine: c.Target.Save.DisableAutoExamine,
		Process: func() (string, error) { return persist.ProcessAt(c.Target.Socket) },
	})
	return r, nil
}

// Saver returns the saver of the target's configuration, or nil if target.save is not enabled.
func (e *Executor) Saver() *persist.Saver { return e.restart.saver }

// Saves reports whether the configuration enables target.save.
func (e *Executor) Saves() bool { return e.restart.saver != nil }

// StoresKeys reports whether the configuration enables target.keys.
func (e *Executor) StoresKeys() bool { return e.restart.keys != nil }
