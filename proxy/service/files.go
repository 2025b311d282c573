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

// settleAfter passes between the first change and reading the files: certificate
// and key are two, and editors write in pieces.
const settleAfter = time.Second

// files tells when the content of some files has changed. It watches their
// folders, since editors, certificate managers and Kubernetes replace files, and
// compares what the files hold, since much else may happen in their folders.
// It belongs to one goroutine.
type files struct {
	log     *slog.Logger
	watcher *fsnotify.Watcher // nil: the system grants none
	paths   []string
	sum     [sha256.Size]byte
	settled <-chan time.Time // receives when it is time to look; nil: nothing happened
}

// watchFiles never fails: without it there is still SIGHUP, as the log says.
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
	f.log.Warn("changes of the configuration's files are not seen: reload by hand", "path", path, "error", err)
}

// watch replaces the files that are watched.
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
		if real, err := filepath.EvalSymlinks(path); err == nil {
			folders[filepath.Dir(real)] = true
		}
	}
	for _, old := range f.watcher.WatchList() {
		if !folders[old] {
			_ = f.watcher.Remove(old) // gone by itself, maybe
		}
	}
	for folder := range folders {
		if err := f.watcher.Add(folder); err != nil {
			f.warn(folder, err)
		}
	}
}

// events receives what happens in the folders.
func (f *files) events() <-chan fsnotify.Event {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Events
}

// lost receives when events were lost.
func (f *files) lost() <-chan error {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Errors
}

// touch has settled receive a moment after the first event: what never rests
// must not put it off for ever.
func (f *files) touch() {
	if f.settled == nil {
		f.settled = time.After(settleAfter)
	}
}

// changed tells whether the files hold anything else than when it was last called.
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
