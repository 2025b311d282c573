package luks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func truncate(path string, size int64) error { return os.Truncate(path, size) }

func TestKeysAreReadAndChecked(t *testing.T) {
	for name, tt := range map[string]struct {
		current, previous string
		kind              error
		says              string
	}{
		"passphrase":                  {first, "", nil, ""},
		"as short as can be":          {"0123456789abcdef", "", nil, ""},
		"with letters beyond ASCII":   {"ein schöner Schlüssel", "", nil, ""},
		"with a short previous one":   {first, "short", nil, ""},
		"none":                        {"", first, ErrNoPassphrase, "csi.storage.k8s.io/some-secret-name"},
		"too short":                   {"0123456789abcde", "", ErrMalformed, "16 to 512 bytes"},
		"too long":                    {strings.Repeat("x", 513), "", ErrMalformed, "16 to 512 bytes"},
		"of a file with a line break": {first + "\n", "", ErrMalformed, "--from-literal"},
		"with a control character":    {"0123456789\x00abcdef", "", ErrMalformed, "control characters"},
		"with a space at its end":     {first + " ", "", ErrMalformed, "white space"},
		"not UTF-8":                   {first + "\xff", "", ErrMalformed, "UTF-8"},
		"the same twice":              {first, first, ErrMalformed, "are equal"},
		"previous too long":           {first, strings.Repeat("x", 513), ErrMalformed, SecretPrevious},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := ReadKeys(map[string]string{SecretPassphrase: tt.current, SecretPrevious: tt.previous}, "csi.storage.k8s.io/some-secret")
			if tt.kind == nil {
				require.NoError(t, err)
				assert.Equal(t, tt.current, k.Current.Reveal())
				assert.Equal(t, tt.previous, k.Previous.Reveal())
				return
			}
			require.ErrorIs(t, err, tt.kind)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func TestMappingNamesAreValidated(t *testing.T) {
	for _, id := range []string{volID, "t0:x", "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d", strings.Repeat("x", 63) + ":8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"} {
		name, err := NameOf(id)
		require.NoError(t, err)
		assert.Equal(t, "spdkcsi-"+id, name)
		assert.LessOrEqual(t, len(name), 127)
	}
	for _, id := range []string{"", "a/b", "../x", "a b", "a\x00", "ä", strings.Repeat("x", 119)} {
		_, err := NameOf(id)
		require.ErrorIs(t, err, ErrInvalid, id)
	}
}

func TestHeadersAreRead(t *testing.T) {
	_, w := newWorld(t)
	h, err := readHeader(w.device)
	require.NoError(t, err)
	assert.Zero(t, h)
	w.header(2, subsystemNew)
	h, err = readHeader(w.device)
	require.NoError(t, err)
	assert.Equal(t, header{2, subsystemNew}, h)
	assert.True(t, h.unused())
	w.header(1, subsystemNew)
	h, err = readHeader(w.device)
	require.NoError(t, err)
	assert.False(t, h.unused())
	_, err = readHeader("/missing")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A kernel without the device mapper has no mappings and cannot encrypt devices.
func TestMissingDeviceMapperIsReported(t *testing.T) {
	k := newDMKernel(t.TempDir())
	require.ErrorIs(t, k.check(), ErrUnsupported)
	require.ErrorContains(t, k.check(), "dm_crypt")
	_, found, err := k.find("x")
	require.NoError(t, err)
	assert.False(t, found)
	require.Error(t, k.resume("x"))
	require.Error(t, k.remove("x"))
}

func FuzzReadHeader(f *testing.F) {
	f.Add([]byte("LUKS\xba\xbe\x00\x02"))
	f.Add(append([]byte("LUKS\xba\xbe\x00\x02"), make([]byte, 600)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "device")
		require.NoError(t, os.WriteFile(path, b, 0o600))
		h, err := readHeader(path)
		require.NoError(t, err)
		if h.unused() {
			require.Contains(t, string(b), "LUKS")
			require.Contains(t, string(b), subsystemNew)
		}
	})
}
