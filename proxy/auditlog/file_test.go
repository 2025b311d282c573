package auditlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A logFile is a File with a clock that the test controls, and with recorded warnings.
type logFile struct {
	*File
	path     string
	warnings atomic.Int32
	clock    atomic.Int64 // nanoseconds since the start
}

func newLogFile(t *testing.T, dir string, most int64, keep int) *logFile {
	l := &logFile{path: filepath.Join(dir, "calls.log")}
	var err error
	l.File, err = OpenFile(l.path, most, keep, func(string, error) { l.warnings.Add(1) })
	require.NoError(t, err)
	began := time.Now()
	// each call returns a different time
	l.now = func() time.Time { return began.Add(time.Duration(l.clock.Add(1))) }
	l.checked = began
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func (l *logFile) pass(d time.Duration) { l.clock.Add(int64(d)) }

func (l *logFile) write(t *testing.T, text string) {
	t.Helper()
	n, err := l.Write([]byte(text + "\n"))
	require.NoError(t, err)
	require.Equal(t, len(text)+1, n)
}

// all returns the lines of all files, oldest first.
func (l *logFile) all(t *testing.T) (lines []string, files int) {
	previous, err := filepath.Glob(filepath.Join(filepath.Dir(l.path), "calls-*.log"))
	require.NoError(t, err)
	for _, path := range append(previous, l.path) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		lines = append(lines, strings.Fields(string(text))...)
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.EqualValues(t, 0o600, info.Mode().Perm(), path)
	}
	return lines, len(previous) + 1
}

func TestLogFilesAreRotated(t *testing.T) {
	dir := t.TempDir()
	for _, other := range []string{"calls-notes.log", "calls-20260101T000000.000000000Z.log.gz", "other.log"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, other), nil, 0o600))
	}
	l := newLogFile(t, dir, 10, 2)
	for i := range 7 {
		l.write(t, fmt.Sprintf("%04d", i)) // two lines fit into a file
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "calls-notes.log")))
	lines, files := l.all(t)
	assert.Equal(t, []string{"0002", "0003", "0004", "0005", "0006"}, lines)
	assert.Equal(t, 3, files)
	l.write(t, "longer-than-a-file")
	lines, _ = l.all(t)
	assert.Contains(t, lines, "longer-than-a-file", "a line is never split")
	assert.FileExists(t, filepath.Join(dir, "other.log"))
	assert.FileExists(t, filepath.Join(dir, "calls-20260101T000000.000000000Z.log.gz"))
	assert.Zero(t, l.warnings.Load())

	again := newLogFile(t, dir, 1<<20, 2)
	again.write(t, "next")
	lines, _ = again.all(t)
	assert.Equal(t, "next", lines[len(lines)-1], "a restart appends")
	assert.Contains(t, lines, "longer-than-a-file")
}

// If logrotate renames or removes a file, the log opens a new file.
func TestLogReopensFilesRotatedByOtherPrograms(t *testing.T) {
	l := newLogFile(t, t.TempDir(), 1<<20, 2)
	l.write(t, "first")
	require.NoError(t, os.Rename(l.path, l.path+".1"))
	l.write(t, "second")
	l.pass(checkAfter)
	l.write(t, "third")
	old, err := os.ReadFile(l.path + ".1")
	require.NoError(t, err)
	assert.Equal(t, "first\nsecond\n", string(old), "nothing is lost")
	lines, _ := l.all(t)
	assert.Equal(t, []string{"third"}, lines)

	require.NoError(t, os.Truncate(l.path, 0)) // copytruncate
	l.pass(checkAfter)
	l.write(t, "fourth")
	lines, _ = l.all(t)
	assert.Equal(t, []string{"fourth"}, lines)

	// If another program's file is at the path, the log refuses to write and leaves that file
	// unchanged.
	require.NoError(t, os.Remove(l.path))
	require.NoError(t, os.WriteFile(l.path, nil, 0o644))
	l.pass(checkAfter)
	for range 2 {
		_, err = l.Write([]byte("fifth\n"))
		require.ErrorContains(t, err, "chmod 600")
	}
	require.NoError(t, os.Chmod(l.path, 0o600))
	l.write(t, "sixth")
	lines, _ = l.all(t)
	assert.Equal(t, []string{"sixth"}, lines)
}

// If no new file can be created, the log continues in the current file.
func TestFailedRotationLosesNoLines(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.Mkdir(dir, 0o700))
	l := newLogFile(t, dir, 10, 2)
	l.write(t, "0000")
	l.path = filepath.Join(dir, "calls.log")
	l.File.path = filepath.Join(dir, "none", "calls.log")
	l.checked = l.now().Add(time.Hour) // prevents a check in the meantime
	for i := 1; i < 5; i++ {
		l.write(t, fmt.Sprintf("%04d", i))
	}
	lines, _ := l.all(t)
	assert.Equal(t, []string{"0000", "0001", "0002", "0003", "0004"}, lines)
	assert.EqualValues(t, 1, l.warnings.Load(), "one warning a minute")
	l.File.path = l.path
	l.pass(retryAfter)
	l.write(t, "0005")
	lines, files := l.all(t)
	assert.Len(t, lines, 6)
	assert.Equal(t, 2, files)
}

// On a full disk, a write either succeeds completely or fails without leaving a partial line.
func TestFullDiskLeavesNoPartialLine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a small tmpfs")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=700"); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	l := newLogFile(t, dir, 1<<20, 2)
	t.Cleanup(func() { _ = l.Close() })
	line, written := strings.Repeat("x", 5000), 0
	var err error
	for err == nil {
		if _, err = l.Write([]byte(line + "\n")); err == nil {
			written++
		}
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NotZero(t, written)
	ballast := filepath.Join(dir, "ballast")
	_ = os.WriteFile(ballast, nil, 0o600)
	lines, _ := l.all(t)
	require.Len(t, lines, written)
	require.NoError(t, os.Truncate(l.path, int64(len(line)+1)*2)) // an administrator frees space
	l.pass(checkAfter)
	l.write(t, "again")
	lines, _ = l.all(t)
	assert.Equal(t, []string{line, line, "again"}, lines, "no part of the refused line is there")
}

// If the file at the path cannot be examined, the log's file may have been replaced. Writes fail,
// so that the caller writes the lines elsewhere.
func TestWritesFailIfTheFileCannotBeExamined(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.Mkdir(dir, 0o700))
	l := newLogFile(t, dir, 1<<20, 1)
	l.write(t, "one")
	require.NoError(t, os.Rename(dir, dir+".away"))
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	l.pass(checkAfter)
	_, err := l.Write([]byte("two\n"))
	require.ErrorIs(t, err, syscall.ENOTDIR)
	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.Rename(dir+".away", dir))
	l.pass(checkAfter)
	l.write(t, "three")
	lines, _ := l.all(t)
	assert.Equal(t, []string{"one", "three"}, lines)
}

func TestOpenFileRefusesUnsafeFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("readable"), nil, 0o640))
	require.NoError(t, os.Symlink("else", at("link")))
	require.NoError(t, syscall.Mkfifo(at("fifo"), 0o600))
	for name, says := range map[string]string{"readable": "chmod 600", "link": "too many levels", "fifo": "no such device", "none/calls.log": "no such file", ".": "is a directory"} {
		_, err := OpenFile(at(name), 1, 1, nil)
		require.ErrorContains(t, err, says, name)
	}
	assert.NoFileExists(t, at("else"))
}

func TestConcurrentWritesSurviveRotation(t *testing.T) {
	l := newLogFile(t, t.TempDir(), 1000, 1000)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 100 {
				_, err := l.Write(fmt.Appendf(nil, "%d-%d\n", i, j))
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	lines, _ := l.all(t)
	assert.Len(t, lines, 800)
	l.sync()
	require.NoError(t, l.Close())
	l.sync() // syncs the pending lines
	_, err := l.Write([]byte("late\n"))
	require.True(t, errors.Is(err, os.ErrClosed))
	assert.Zero(t, l.warnings.Load())
}
