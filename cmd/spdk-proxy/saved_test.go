package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func savedFile(t *testing.T, dir, name string, nqns ...string) {
	text := `{"spdkgate":{"saved":"2026-11-21T10:00:00Z","release":"v26.05","process":"p"},"subsystems":[{"subsystem":"accel","config":[{"method":"accel_crypto_key_create","params":{"name":"k","cipher":"AES_XTS","key":"hunter2"}}]},{"subsystem":"nvmf","config":[`
	for i, nqn := range nqns {
		if i > 0 {
			text += ","
		}
		text += `{"method":"nvmf_create_subsystem","params":{"nqn":"` + nqn + `"}}`
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text+`]}]}`), 0o600))
}

func TestSavedFilesAreListedComparedAndChosen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "target")
	run := func(args ...string) (string, error) {
		root := newRoot()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{"saved", "--dir", dir}, args...))
		err := root.Execute()
		return out.String(), err
	}
	out, err := run("prepare")
	require.NoError(t, err)
	assert.Contains(t, out, "0 calls")

	out, err = run("diff")
	require.NoError(t, err, "the manual's command works without a held configuration")
	assert.Contains(t, out, "no differences: the target contained")
	_, err = run("diff", "current.json", "held.json")
	require.ErrorContains(t, err, "there is no held.json")

	savedFile(t, dir, "current.json", "nqn.a", "nqn.b")
	savedFile(t, dir, "held.json", "nqn.b", "nqn.c")
	savedFile(t, dir, "20261121T100000.000Z.json", "nqn.a")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "damaged-x.json"), []byte("{"), 0o600))
	out, err = run("list")
	require.NoError(t, err)
	var names []string
	for line := range strings.Lines(out) {
		names = append(names, strings.Fields(line)[0])
	}
	assert.Equal(t, []string{"NAME", "current.json", "held.json", "20261121T100000.000Z.json", "damaged-x.json"}, names)
	assert.Contains(t, out, "v26.05")
	assert.Contains(t, out, "damaged\n")

	out, err = run("diff")
	require.NoError(t, err)
	assert.Equal(t, "- nvmf: nvmf_create_subsystem (new-nqn nqn.a)\n+ nvmf: nvmf_create_subsystem (new-nqn nqn.c)\n", out)
	out, err = run("diff", "current.json", "20261121T100000.000Z.json")
	require.NoError(t, err)
	assert.Equal(t, "- nvmf: nvmf_create_subsystem (new-nqn nqn.b)\n", out)
	assert.NotContains(t, out, "hunter2")

	_, err = run("use", "damaged-x.json")
	require.Error(t, err)
	_, err = run("use", "none.json")
	require.ErrorContains(t, err, "saved list")
	_, err = run("use")
	assert.Equal(t, exitUsage, exitCode(err))
	out, err = run("use", "held.json")
	require.NoError(t, err)
	assert.Contains(t, out, "Restart spdk_tgt")
	out, err = run("list")
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^current\.json +2026-11-21T10:00:00Z +v26\.05 +3 +chosen on \S+, not loaded yet$`, out)
	assert.Equal(t, 1, strings.Count(out, "chosen on"))
	text, err := os.ReadFile(filepath.Join(dir, "current.json"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "nqn.c")
	out, err = run("prepare")
	require.NoError(t, err)
	assert.Contains(t, out, "3 calls")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "current.json"), []byte("{"), 0o600))
	_, err = run("prepare")
	require.ErrorContains(t, err, "saved use NAME")
}

// An older file must not make SPDK examine a disk whose lvstore has been deleted since the file was
// saved: a host may have written another lvstore to that disk.
func TestSavedUseDoesNotExamineMoreDisks(t *testing.T) {
	const (
		auto      = `{"method":"bdev_set_options","params":{"bdev_auto_examine":true}}`
		off       = `{"method":"bdev_set_options","params":{"bdev_auto_examine":false}}`
		byDefault = `{"method":"bdev_set_options","params":{}}`
		one       = `{"method":"bdev_examine","params":{"name":"disk1"}}`
		two       = `{"method":"bdev_examine","params":{"name":"disk2"}}`
	)
	for _, c := range []struct {
		name            string
		current, chosen []string
		refused         string // what the error names; "" if the file is chosen
	}{
		{"the same disks", []string{off, one}, []string{off, one}, ""},
		{"fewer disks", []string{off, one, two}, []string{off, one}, ""},
		{"another disk", []string{off, one}, []string{off, one, two}, "examine disk2, unlike"},
		{"two disks", []string{off}, []string{off, one, two}, "examine disk1, disk2, unlike"},
		{"every disk", []string{off, one}, []string{auto}, "examine each new bdev, unlike"},
		{"every disk by default", []string{off, one}, []string{byDefault}, "examine each new bdev, unlike"},
		{"every disk as before", []string{auto}, []string{off, one}, ""},
		{"calls of other kinds", []string{off, one}, []string{off, one, `{"method":"other","params":{"name":7}}`, `{"method":"framework_wait_init"}`}, ""},
		{"a damaged current file", nil, []string{off, one}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "target")
			require.NoError(t, os.Mkdir(dir, 0o700))
			write := func(name string, calls []string) {
				text := `{"subsystems":[{"subsystem":"bdev","config":[` + strings.Join(calls, ",") + `]}]}`
				if calls == nil {
					text = "{"
				}
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			const older = "20261121T100000.000Z.json"
			write("current.json", c.current)
			write(older, c.chosen)
			use := func(args ...string) error {
				root := newRoot()
				root.SetOut(&bytes.Buffer{})
				root.SetErr(&bytes.Buffer{})
				root.SetArgs(append([]string{"saved", "--dir", dir, "use", older}, args...))
				return root.Execute()
			}
			if c.refused == "" {
				require.NoError(t, use())
				return
			}
			before, err := os.ReadFile(filepath.Join(dir, "current.json"))
			require.NoError(t, err)
			require.ErrorContains(t, use(), c.refused)
			after, err := os.ReadFile(filepath.Join(dir, "current.json"))
			require.NoError(t, err)
			assert.Equal(t, string(before), string(after))
			require.NoError(t, use("--examine"))
		})
	}
}

// saved prepare works as spdk_tgt's unit uses it, even if spdk_tgt runs as another user.
func TestPrepareCopiesForAnotherUser(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "target")
	to := filepath.Join(t.TempDir(), "saved.json")
	prepare := func(args ...string) error {
		root := newRoot()
		root.SetOut(&bytes.Buffer{})
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(append([]string{"saved", "--dir", dir, "prepare"}, args...))
		return root.Execute()
	}
	self := strconv.Itoa(os.Geteuid())
	require.ErrorContains(t, prepare("--copy-to", to), "--for USER")
	require.ErrorContains(t, prepare("--for", self), "--copy-to FILE")
	require.ErrorContains(t, prepare("--copy-to", to, "--for", "no such user"), "the user that spdk_tgt runs as")
	assert.NoFileExists(t, to)
	require.NoError(t, prepare("--copy-to", to, "--for", self))
	text, err := os.ReadFile(to)
	require.NoError(t, err)
	current, err := os.ReadFile(filepath.Join(dir, "current.json"))
	require.NoError(t, err)
	assert.Equal(t, string(current), string(text))
}

// A directory that does not exist is reported, and not created: the command may run on the wrong
// host.
func TestSavedCommandsCreateNoDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "target")
	for _, args := range [][]string{{"list"}, {"diff"}, {"use", "current.json"}} {
		o := run(t, "", append([]string{"saved", "--dir", dir}, args...)...)
		assert.Equal(t, exitFailed, o.code, args)
		assert.Contains(t, o.stderr, "there are no saved configurations in "+dir+": run this command on the proxy's host, with --dir if")
		assert.NoDirExists(t, dir)
	}
}
