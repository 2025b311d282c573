package luks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

// Passphrases are leastLength to mostLength bytes long, but a previous passphrase may be shorter.
func TestPassphrasesOfWrongLengthAreRejected(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		current, previous int
		ok                bool
	}{
		{leastLength - 1, 0, false}, {leastLength, 0, true}, {mostLength, 0, true}, {mostLength + 1, 0, false},
		{leastLength, 1, true}, {leastLength, mostLength, true}, {leastLength, mostLength + 1, false}, {leastLength, leastLength, false},
	} {
		keys, err := ReadKeys(map[string]string{SecretPassphrase: x(c.current), SecretPrevious: x(c.previous)}, "class")
		assert.Equal(t, c.ok, err == nil, "%+v", c)
		if c.ok {
			assert.Equal(t, []int{c.current, c.previous}, []int{len(keys.Current.Reveal()), len(keys.Previous.Reveal())})
		} else {
			require.ErrorIs(t, err, ErrMalformed)
			assert.Nil(t, keys)
		}
	}
	for _, wrong := range []string{" " + x(leastLength), x(leastLength) + " ", x(leastLength) + "\n", x(leastLength) + "\x00" + x(leastLength), x(leastLength) + "\xff"} {
		_, err := ReadKeys(map[string]string{SecretPassphrase: wrong}, "class")
		require.ErrorIs(t, err, ErrMalformed, "%q", wrong)
		assert.NotContains(t, err.Error(), "xxx")
	}
	_, err := ReadKeys(nil, "class")
	require.ErrorIs(t, err, ErrNoPassphrase)
}

func TestLongOutputIsShortened(t *testing.T) {
	whole := strings.Repeat("a", 500) + strings.Repeat("b", 500)
	assert.Equal(t, whole, shorten(whole))
	assert.Equal(t, strings.Repeat("a", 500)+" … "+strings.Repeat("b", 499)+"c", shorten(whole+"c"))
}

// run returns the exit code of a program as a result, and any other failure as an error.
func TestRunReturnsExitCodeAndOutput(t *testing.T) {
	secret := hostauth.NewSecret("in")
	for script, want := range map[string]struct {
		output string
		code   int
	}{"cat": {"in", 0}, "echo out; echo err >&2; exit 3": {"out\nerr", 3}, "exit 1": {"", 1}} {
		output, code, err := run(secret, "sh", "-c", script)
		require.NoError(t, err, script)
		assert.Equal(t, []any{want.output, want.code}, []any{output, code}, script)
	}
	output, code, err := run(secret, "no-such-program-of-this-test")
	require.ErrorIs(t, err, ErrUnsupported)
	assert.Equal(t, []any{"", 0}, []any{output, code})
	output, code, err = run(secret, "sh", "-c", "echo before; kill -9 $$")
	require.ErrorContains(t, err, "run sh: signal: killed: before")
	assert.Equal(t, []any{"before", 0}, []any{output, code})
}

func TestSizeOfAMissingDeviceIsUnknown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device")
	_, err := sizeOf(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, make([]byte, 4096), 0o600))
	size, err := sizeOf(path)
	require.NoError(t, err)
	assert.EqualValues(t, 4096, size)
}
