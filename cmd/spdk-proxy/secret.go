package main

import (
	"fmt"
	"io"
	"os"
)

// printSecret writes a line that others must not read. A shell makes the file of
// `> FILE` readable by everybody under a usual umask, so such a file is closed to all
// but its owner before anything is in it. One that is closed to everybody else
// already keeps its mode: perhaps a group is meant to read it.
func printSecret(w io.Writer, secret string) error {
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o007 != 0 {
			err = f.Chmod(0o600)
		}
		if err != nil {
			return fmt.Errorf("close %s to everybody else: %w: nothing was written; write to a file of your own", f.Name(), err)
		}
	}
	_, err := fmt.Fprintln(w, secret)
	return err
}
