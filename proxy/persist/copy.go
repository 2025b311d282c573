package persist

import (
	"fmt"

	"github.com/spdkgate/spdkgate/proxy/directory"
)

// CopyCurrent copies the current file to path, provided that spdk_tgt can load it. Only this user
// can read the copy, which is meant for an spdk_tgt that does not run as the owner of f's
// directory. Only root and this user may have write access to path's directory. CopyCurrent is
// meant to run as root, so it follows no links in either directory, and changes no other file.
func (f *Folder) CopyCurrent(path string, uid, gid int) error {
	unlock, err := f.disk.Lock()
	if err != nil {
		return fmt.Errorf("lock the directory of saved configurations: %w", err)
	}
	defer unlock()
	text, _, err := f.disk.Read(Current)
	if err != nil {
		return fmt.Errorf("copy the saved configuration: %w", err)
	}
	if _, err := parse(text); err != nil {
		return fmt.Errorf("copy the saved configuration: %s/%s: %w", f.path, Current, err)
	}
	if err := directory.WriteFor(path, text, uid, gid); err != nil {
		return fmt.Errorf("copy the saved configuration to %s: %w", path, err)
	}
	return nil
}
