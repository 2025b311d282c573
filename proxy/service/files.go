package service

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settleAfter is the time between the first change to a file and the read of all files. The delay
// is necessary because a certificate and its key are separate files, and because editors may write
// a file in several steps.
const settleAfter = time.Second

// files detects changes to the contents of files. It watches the files' directories, because
// editors, certificate managers and Kubernetes replace files instead of writing to them. After an
// event, it compares the contents, because other files in these directories also change. Only one
// goroutine may use it.
type files struct {
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil if nothing is watched
	paths   []string
	sum     [sha256.Size]byte
	// receives a value when a comparison is due; nil if there has been no event since the last
	// comparison
	settled <-chan time.Time
}

// watchFiles starts watching paths. If it cannot, it logs a warning; SIGHUP and `spdk-proxy reload`
// still work.
func watchFiles(paths []string, log *slog.Logger) *files {
	f := &files{log: log}
	if len(paths) == 0 {
		return f
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		f.warn("", err)
		return f
	}
	f.watcher = watcher
	f.watch(paths)
	f.changed()
	return f
}

func (f *files) warn(path string, err error) {
	f.log.Warn("cannot watch the configuration's files: reload by hand after a change", "path", path, "error", err)
}

// watch replaces the set of watched files.
func (f *files) watch(paths []string) {
	if f.watcher == nil {
		return
	}
	if !slices.Equal(paths, f.paths) {
		f.paths = paths
		f.changed()
	}
	folders := map[string]bool{}
	for _, path := range paths {
		folders[filepath.Dir(path)] = true
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			folders[filepath.Dir(resolved)] = true
		}
	}
	for _, old := range f.watcher.WatchList() {
		if !folders[old] {
			_ = f.watcher.Remove(old) // fails if the directory was removed
		}
	}
	for folder := range folders {
		if err := f.watcher.Add(folder); err != nil {
			f.warn(folder, err)
		}
	}
}

// events returns a channel that receives the events in the watched directories.
func (f *files) events() <-chan fsnotify.Event {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Events
}

// lost returns a channel that receives an error when the watcher has lost events.
func (f *files) lost() <-chan error {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Errors
}

// touch makes settled receive a value settleAfter after the first event. Later events do not
// postpone this, because files that change constantly must not prevent a reload.
func (f *files) touch() {
	if f.settled == nil {
		f.settled = time.After(settleAfter)
	}
}

// changed reports whether the contents of the files have changed since the last call.
func (f *files) changed() bool {
	all := sha256.New()
	for _, path := range f.paths {
		text, err := os.ReadFile(path)
		fmt.Fprintf(all, "%q %d %v\n", path, len(text), err != nil)
		all.Write(text)
	}
	old := f.sum
	all.Sum(f.sum[:0])
	return old != f.sum
}

func (f *files) close() {
	if f.watcher != nil {
		_ = f.watcher.Close()
	}
}
