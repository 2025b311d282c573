package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/argon2"
)

// assertHash asserts that a line is the argon2id hash of a password. With the race detector,
// argon2id is fast but bcrypt is slow.
func assertHash(t *testing.T, line []byte, password string) {
	t.Helper()
	parts := strings.Split(strings.TrimSpace(string(line)), "$")
	require.Len(t, parts, 6, "%s", line)
	var memory, passes uint32
	var threads uint8
	_, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &memory, &passes, &threads)
	require.NoError(t, err)
	salt, err := base64.RawStdEncoding.DecodeString(parts[4])
	require.NoError(t, err)
	want, err := base64.RawStdEncoding.DecodeString(parts[5])
	require.NoError(t, err)
	assert.Equal(t, want, argon2.IDKey([]byte(password), salt, passes, memory, threads, uint32(len(want))), "the hash of another password")
}

// Two commands in a script that share standard input read one line each.
func TestHashPasswordReadsOneLineFromAPipe(t *testing.T) {
	for stdin, left := range map[string]string{
		"correct horse\nsecond line\n":  "second line\n",
		"correct horse\r\n\nthird line": "\nthird line",
		"correct horse\n":               "",
		"correct horse":                 "",
	} {
		in, write, err := os.Pipe()
		require.NoError(t, err)
		_, err = write.WriteString(stdin)
		require.NoError(t, err)
		require.NoError(t, write.Close())
		cmd := command(t.Context(), "hash-password")
		cmd.Stdin = in
		hash, err := cmd.Output()
		require.NoError(t, err)
		rest, err := io.ReadAll(in)
		require.NoError(t, err)
		assert.Equal(t, left, string(rest), "%q", stdin)
		assertHash(t, hash, "correct horse")
		require.NoError(t, in.Close())
	}
}

func TestHashPasswordRefusesAShortPassword(t *testing.T) {
	for password, accepted := range map[string]bool{"elevenchars": false, "twelve chars": true, "zwölf Größen": true, "ÄÖÜäöüß": false} {
		o := run(t, password+"\n", "hash-password")
		assert.Equal(t, accepted, o.code == 0, password)
		if !accepted {
			assert.Equal(t, outcome{"", "spdk-proxy: the password has fewer than 12 characters: choose a longer one. For an old one that clients still use, set --min-length\n", exitFailed}, o)
		}
	}
	assert.Zero(t, run(t, "spdk\n", "hash-password", "--min-length", "4").code)
	assert.NotZero(t, run(t, "\n", "hash-password", "--min-length", "0").code)
}

func TestHashPasswordReplacesTheFileOrLeavesItUnchanged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "admin.hash")
	out := func(password string) outcome {
		return run(t, password+"\n", "hash-password", "--out", path)
	}
	is := func(password string, mode os.FileMode) {
		t.Helper()
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assertHash(t, text, password)
		assert.True(t, bytes.HasSuffix(text, []byte("\n")))
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode().Perm())
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Len(t, files, 1, "a temporary file remains")
	}
	assert.NotZero(t, out("short").code)
	assert.NoFileExists(t, path)
	assert.Equal(t, outcome{}, out("correct horse"))
	is("correct horse", 0o600)
	for _, mode := range []struct{ before, after os.FileMode }{{0o644, 0o640}, {0o640, 0o640}, {0o400, 0o400}} {
		require.NoError(t, os.Chmod(path, mode.before))
		assert.Zero(t, out("battery staple").code)
		is("battery staple", mode.after)
	}
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(path, 0, 4242))
	}
	assert.NotZero(t, out("short").code)
	is("battery staple", 0o400)
	assert.Zero(t, out("correct horse").code)
	if info, err := os.Stat(path); assert.NoError(t, err) && os.Geteuid() == 0 {
		assert.EqualValues(t, 4242, info.Sys().(*syscall.Stat_t).Gid)
	}

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path, link))
	for _, bad := range []string{link, dir, filepath.Join(dir, "missing", "file")} {
		o := run(t, "another password\n", "hash-password", "--out", bad)
		assert.Equal(t, exitFailed, o.code, bad)
		assert.Contains(t, o.stderr, "write "+bad+": ")
	}
	is("correct horse", 0o400)
	assert.Equal(t, exitUsage, run(t, "", "hash-password", "--out", "").code)
}

func TestHashPasswordRefusesAnEmptyPassword(t *testing.T) {
	for _, stdin := range []string{"", "\n", "\r\n", "\nsecond line\n"} {
		for _, flag := range []string{"", "--bcrypt"} {
			o := run(t, stdin, strings.Fields("hash-password "+flag)...)
			assert.Equal(t, outcome{"", "spdk-proxy: the password is empty: send it as the first line of standard input\n", exitFailed}, o, "%q", stdin)
		}
	}
}
