package luks

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

// The real cryptsetup accepts the commands that do not need the device mapper: the test writes a
// header, changes its passphrase, and marks the device as used. test/suites/kernel opens devices on
// a real kernel.
func TestRealCryptsetupAcceptsTheCommands(t *testing.T) {
	if _, err := exec.LookPath("cryptsetup"); err != nil {
		t.Skip("needs cryptsetup: apt-get install cryptsetup-bin")
	}
	l, w := newWorld(t)
	l.runTool = func(stdin hostauth.Secret, name string, args ...string) (string, int, error) {
		if name != "cryptsetup" {
			return "", 1, nil
		}
		if args[0] != "open" || slices.Contains(args, "--test-passphrase") {
			w.ran = append(w.ran, args[0])
			return run(stdin, name, args...)
		}
		mapped := args[len(args)-1]
		out, code, err := run(stdin, name, append(slices.Clone(args[:len(args)-1]), "--test-passphrase")...)
		if code == 0 && err == nil {
			w.mappings[mapped] = &mapping{uuid: "CRYPT-LUKS2-1-x", below: number}
		}
		return out, code, err
	}
	v := w.volume()
	v.MayFormat, v.SectorSize = true, 4096
	p, err := l.Open(t.Context(), v)
	require.NoError(t, err)
	assert.True(t, p.Unused)
	require.NoError(t, l.MarkUsed(t.Context(), v.Name, v.Device))
	p, err = l.Open(t.Context(), v)
	require.NoError(t, err)
	assert.False(t, p.Unused)
	require.NoError(t, l.Close(t.Context(), v.Name))

	v.Keys = keysOf(second, "")
	_, err = l.Open(t.Context(), v)
	require.ErrorIs(t, err, ErrWrongPassphrase)
	v.Keys = keysOf(second, first)
	_, err = l.Open(t.Context(), v)
	require.NoError(t, err)
	require.NoError(t, l.Close(t.Context(), v.Name))
	v.Keys = keysOf(first, "")
	_, err = l.Open(t.Context(), v)
	require.ErrorIs(t, err, ErrWrongPassphrase, "the previous passphrase was removed")
	v.Keys = keysOf(second, "")
	_, err = l.Open(t.Context(), v)
	require.NoError(t, err)
	for _, c := range []string{"luksFormat", "luksAddKey", "luksRemoveKey", "config"} {
		assert.Equal(t, 1, strings.Count(strings.Join(w.ran, " ")+" ", c+" "), c)
	}
	dump, err := exec.Command("cryptsetup", "luksDump", v.Device).CombinedOutput()
	require.NoError(t, err)
	for _, line := range []string{"argon2id", "65536", "4096 [bytes]", "aes-xts-plain64", "spdkcsi"} {
		assert.Contains(t, string(dump), line)
	}
}
