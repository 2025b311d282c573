package proxy

import (
	"context"
	"log/slog"

	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
)

// Thaw thaws, once, what no living process has in hand of the operations in a
// journal, and tells how many are left.
func Thaw(ctx context.Context, dir string, log *slog.Logger) (left int, err error) {
	folder, err := quiesce.FindFolder(dir)
	if err != nil {
		return 0, err
	}
	return quiesce.New(quiesce.Options{Folder: folder, Connect: connectDirectly, Process: persist.ProcessAt, Log: log, Leave: true}).Recover(ctx), nil
}
