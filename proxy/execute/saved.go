package execute

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// SavedStatus serves spdkgate_config_get_status.
func (e *Executor) SavedStatus(context.Context, Command) (json.RawMessage, error) {
	return marshal(savedConfig(e.restart.saver.Status()), nil)
}

// Save serves spdkgate_config_save.
func (e *Executor) Save(ctx context.Context, c Command) (json.RawMessage, error) {
	accept, _ := c.Params["accept_loss"].(bool)
	err := e.restart.saver.Save(context.WithoutCancel(ctx), accept)
	return marshal(savedConfig(e.restart.saver.Status()), err)
}

// AwaitSaved serves spdkgate_config_await.
func (e *Executor) AwaitSaved(ctx context.Context, c Command) (json.RawMessage, error) {
	p, err := paramsOf[spdkrpc.SpdkgateConfigAwaitParams](c)
	if err != nil {
		return nil, err
	}
	process, err := persist.ProcessAt(e.Config.Target.Socket)
	if err == nil {
		err = e.restart.saver.AwaitSaved(ctx, process)
	}
	if err != nil {
		return nil, err
	}
	list, now := []spdkrpc.ProxyMissingExport{}, e.restart.saver.Status()
	if p.Protocol != nil && *p.Protocol == spdkrpc.SpdkgateConfigAwaitProtocolISCSI {
		for _, missing := range now.MissingISCSI {
			m := spdkrpc.ProxyMissingExport{Method: missing.Method, Initiators: missing.Initiators}
			if missing.IQN != "" {
				m.IQN = &missing.IQN
			} else {
				m.Tag = &missing.Tag
			}
			list = append(list, m)
		}
		return marshal(list, nil)
	}
	for _, missing := range now.Missing {
		m := spdkrpc.ProxyMissingExport{Method: missing.Method}
		for _, n := range missing.Names {
			switch n.Kind {
			case "nqn", "new-nqn":
				m.NQN = &n.Value
			case "host-nqn":
				m.Host = &n.Value
			}
		}
		if m.NQN != nil && (p.NQN == nil || *p.NQN == *m.NQN) && (p.Host == nil || m.Host != nil && *p.Host == *m.Host) {
			list = append(list, m)
		}
	}
	return marshal(list, nil)
}

// savedTime is the time format for saved files, with milliseconds.
const savedTime = "2006-01-02T15:04:05.000Z07:00"

// ListSaved serves spdkgate_config_list_saved.
func (e *Executor) ListSaved(context.Context, Command) (json.RawMessage, error) {
	list, err := e.restart.folder.List()
	files := []spdkrpc.ProxySavedFile{}
	for _, f := range list {
		file := spdkrpc.ProxySavedFile{Name: f.Name, SavedAt: f.Time.Format(savedTime), Release: f.Release, Calls: uint32(f.Calls), Damaged: f.Damaged != nil}
		if text, err := e.restart.folder.Text(f.Name); err == nil {
			file.Sha256 = text.Sum()
		}
		files = append(files, file)
	}
	return marshal(files, err)
}

// GetSaved serves spdkgate_config_get_saved.
func (e *Executor) GetSaved(_ context.Context, c Command) (json.RawMessage, error) {
	name, _ := c.Params["name"].(string)
	text, err := e.restart.folder.Text(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &spdkrpc.Error{Method: c.Method.Name, Kind: spdkrpc.NoSuchDevice, Code: -2, Message: "No such file"}
	case errors.Is(err, persist.ErrTooLarge):
		return nil, &spdkrpc.Error{Method: c.Method.Name, Kind: spdkrpc.Failed, Code: -27, Message: err.Error()}
	case err != nil:
		return nil, err
	}
	return marshal(spdkrpc.ProxySavedText{Name: text.Name, SavedAt: text.SavedAt.Format(savedTime), Text: string(text.Bytes), Sha256: text.Sum()}, nil)
}

// maxMissingListed is the maximum number of missing calls, and of RAIDs that a restart would lose,
// that a status lists.
const maxMissingListed = 100

func savedConfig(now persist.Status) spdkrpc.ProxySavedConfig {
	status := spdkrpc.ProxySavedConfig{
		File: now.File, Pending: now.Pending, Unsettled: now.Unsettled, Failed: now.Failed,
		Missing: []string{}, MissingCount: uint32(len(now.Missing)), NotRestorable: []spdkrpc.ProxyNotRestorable{},
	}
	for _, c := range now.Missing[:min(len(now.Missing), maxMissingListed)] {
		status.Missing = append(status.Missing, c.String())
	}
	for _, lost := range now.NotRestorable[:min(len(now.NotRestorable), maxMissingListed)] {
		status.NotRestorable = append(status.NotRestorable, spdkrpc.ProxyNotRestorable{RAID: lost.Raid, Disk: lost.Disk, Reason: lost.Reason()})
	}
	if !now.SavedAt.IsZero() {
		status.SavedAt = new(now.SavedAt.Format(time.RFC3339))
	}
	if !now.Chosen.IsZero() {
		status.ChosenAt = new(now.Chosen.Format(time.RFC3339))
	}
	if len(now.Missing) > 0 && !now.Unsettled || status.ChosenAt != nil {
		status.HeldFile = new(now.Held)
	}
	return status
}

// marshal encodes a result of one of the proxy's own methods as JSON, unless err is set.
func marshal(v any, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
