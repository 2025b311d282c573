package proxy

import (
	"errors"
	"io/fs"
	"sync"

	"github.com/spdkgate/spdkgate/proxy/keys"
	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
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

// savedTime is the format of the times of saved files, which have milliseconds.
const savedTime = "2006-01-02T15:04:05.000Z07:00"

// savedFiles lists the saved configurations.
func (r *restart) savedFiles() ([]spdkrpc.ProxySavedFile, error) {
	list, err := r.folder.List()
	files := []spdkrpc.ProxySavedFile{}
	for _, f := range list {
		file := spdkrpc.ProxySavedFile{Name: f.Name, SavedAt: f.Time.Format(savedTime), Release: f.Release, Calls: uint32(f.Calls), Damaged: f.Damaged != nil}
		if text, err := r.folder.Text(f.Name); err == nil {
			file.Sha256 = text.Sum()
		}
		files = append(files, file)
	}
	return files, err
}

// savedText reads a saved configuration for a method.
func (r *restart) savedText(method, name string) (spdkrpc.ProxySavedText, error) {
	text, err := r.folder.Text(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return spdkrpc.ProxySavedText{}, &spdkrpc.Error{Method: method, Kind: spdkrpc.NoSuchDevice, Code: -2, Message: "No such file"}
	case errors.Is(err, persist.ErrTooLarge):
		return spdkrpc.ProxySavedText{}, &spdkrpc.Error{Method: method, Kind: spdkrpc.Failed, Code: -27, Message: err.Error()}
	case err != nil:
		return spdkrpc.ProxySavedText{}, err
	}
	return spdkrpc.ProxySavedText{Name: text.Name, SavedAt: text.SavedAt.Format(savedTime), Text: string(text.Bytes), Sha256: text.Sum()}, nil
}
