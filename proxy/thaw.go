package proxy

import (
	"context"
	"log/slog"

	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
)

// Thaw thaws the volumes of all operations in a journal that no running process works on. It
// tries once, and returns how many operations are left. dir is the journal's directory.
func Thaw(ctx context.Context, dir string, log *slog.Logger) (left int, err error) {
	folder, err := quiesce.FindFolder(dir)
	if err != nil {
		return 0, err
	}
	return quiesce.New(quiesce.Options{Folder: folder, Connect: connectDirectly, Process: persist.ProcessAt, Log: log, Leave: true}).Recover(ctx), nil
}
