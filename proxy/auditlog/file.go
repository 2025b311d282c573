package auditlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A File is a log file that is rotated when it reaches a maximum size. Previous files are named
// after the time of rotation, such as calls-20260131T120000.000000000Z.log. Each Write appends one
// line, either completely or not at all. A File is safe for concurrent use.
type File struct {
	path string
	most int64 // maximum size of a file, in bytes
	keep int   // number of previous files to keep
	warn func(problem string, err error)
	now  func() time.Time

	mu      sync.Mutex
	file    *os.File
	size    int64
	checked time.Time // when the file at path was last compared with the open file
	dirty   bool      // whether some lines have not been synced yet
	retry   time.Time // earliest time to retry a failed rotation
	closed  bool
}

const (
	// syncAfter is the longest time that a line exists only in the kernel's memory. A power failure
	// loses the lines written during that time; the end of the process loses none.
	syncAfter = time.Second
	// checkAfter is the longest time during which lines are still written to a file that another
	// program has renamed or removed.
	checkAfter = time.Second
	// retryAfter is the interval between attempts to start a new file after a failure.
	retryAfter = time.Minute
	rotatedAt  = "20060102T150405.000000000Z"
)

// OpenFile opens a log file, or creates it with mode 0600 if it does not exist. It does not create
// directories. OpenFile refuses a file that other users can read or write. warn is called for
// failures that lose no lines.
func OpenFile(path string, mostBytes int64, keep int, warn func(problem string, err error)) (*File, error) {
	f := &File{path: path, most: mostBytes, keep: keep, warn: warn, now: time.Now}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	return f, nil
}

func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		err = private(f.path, info)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.size, f.checked = file, info.Size(), f.now()
	return nil
}

// CheckFile checks the type and mode of an existing file, and returns the error that OpenFile would
// return. It changes nothing. If the file is missing, the error is fs.ErrNotExist.
func CheckFile(path string) error {
	info, err := os.Lstat(path)
	if err == nil {
		err = private(path, info)
	}
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	return nil
}

func private(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s must be a file without access for other users: check which program created it, then chmod 600", path)
	}
	return nil
}

// Write appends a line. If Write fails, the file contains no part of the line.
func (f *File) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, os.ErrClosed
	}
	if err := f.follow(); err != nil {
		return 0, err
	}
	if f.size > 0 && f.size+int64(len(line)) > f.most && !f.now().Before(f.retry) {
		f.rotate()
	}
	n, err := f.file.Write(line)
	if err != nil {
		if n > 0 { // a partial line would corrupt the next line
			err = errors.Join(err, f.file.Truncate(f.size))
		}
		return 0, err
	}
	f.size += int64(n)
	if !f.dirty {
		f.dirty = true
		time.AfterFunc(syncAfter, f.sync)
	}
	return n, nil
}

// follow reopens the file if another program, such as logrotate, has renamed or removed it.
func (f *File) follow() error {
	if f.now().Sub(f.checked) < checkAfter {
		return nil
	}
	f.checked = f.now()
	there, err := os.Lstat(f.path)
	if err == nil {
		own, err := f.file.Stat()
		if err != nil {
			return err
		}
		if os.SameFile(there, own) {
			f.size = own.Size() // another program may have truncated the file
			return nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	former := f.file
	if err := f.open(); err != nil {
		f.checked = time.Time{} // check again at the next line
		return err
	}
	return f.end(former)
}

// rotate starts a new file. If that fails, the log continues in the current file, because a lost
// line is worse than an oversized file.
func (f *File) rotate() {
	former := f.file
	err := os.Rename(f.path, f.previous(f.now())) // nanoseconds make the name unique
	if err == nil {
		err = f.open()
	}
	if err != nil {
		f.retry = f.now().Add(retryAfter)
		f.warn("the audit log exceeds its maximum size: no new file can be created", err)
		return
	}
	if err := f.end(former); err != nil {
		f.warn("the last lines of a file of the audit log may be lost in a power failure", err)
	}
	if err := f.prune(); err != nil {
		f.warn("previous files of the audit log cannot be removed", err)
	}
}

func (f *File) end(former *os.File) error { return errors.Join(former.Sync(), former.Close()) }

// sync flushes the lines to disk.
func (f *File) sync() {
	f.mu.Lock()
	f.dirty = false
	if f.closed {
		f.mu.Unlock()
		return
	}
	// use a duplicate: a slow disk must not delay calls, and the file may be closed during the sync
	file, err := syscall.Dup(int(f.file.Fd()))
	f.mu.Unlock()
	if err == nil {
		err = errors.Join(syscall.Fsync(file), syscall.Close(file))
	}
	if err != nil {
		f.warn("the last lines of the audit log may be lost in a power failure", err)
	}
}

// previous returns the name for a file rotated at this time.
func (f *File) previous(at time.Time) string {
	extension := filepath.Ext(f.path)
	return strings.TrimSuffix(f.path, extension) + "-" + at.UTC().Format(rotatedAt) + extension
}

// prune removes the oldest previous files until only keep of them are left. It removes no other
// files.
func (f *File) prune() error {
	dir, name := filepath.Split(f.path)
	extension := filepath.Ext(name)
	pattern := regexp.MustCompile(`^` + regexp.QuoteMeta(strings.TrimSuffix(name, extension)) + `-\d{8}T\d{6}\.\d{9}Z` + regexp.QuoteMeta(extension) + `$`)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return err
	}
	var previous []string
	for _, e := range entries {
		if pattern.MatchString(e.Name()) {
			previous = append(previous, e.Name())
		}
	}
	slices.Sort(previous)
	var wrong []error
	for _, name := range previous[:max(0, len(previous)-f.keep)] {
		wrong = append(wrong, os.Remove(filepath.Join(dir, name)))
	}
	return errors.Join(wrong...)
}

// Close syncs and closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return f.end(f.file)
}
