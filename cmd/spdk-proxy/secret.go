package main

import (
	"fmt"
	"io"
	"os"
)

// printSecret writes a line that other users must not read. With a usual umask, a shell creates
// the file of `> FILE` readable by every user, so printSecret first changes its mode to 0600. A
// file that other users cannot access keeps its mode, because a group may be meant to read it.
func printSecret(w io.Writer, secret string) error {
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o007 != 0 {
			err = f.Chmod(0o600)
		}
		if err != nil {
			return fmt.Errorf("remove other users' access to %s: %w: nothing was written; use a file that you own", f.Name(), err)
		}
	}
	_, err := fmt.Fprintln(w, secret)
	return err
}
