package luks

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

// A new device is encrypted only once. Later calls open it with its passphrase.
func TestEncryptedDeviceIsOpenedAndClosed(t *testing.T) {
	l, w := newWorld(t)
	v := w.volume()
	v.MayFormat, v.SectorSize, v.Discards = true, 4096, true
	p, err := l.Open(t.Context(), v)
	require.NoError(t, err)
	assert.Equal(t, Plain{"/dev/dm-3", true}, p)
	assert.False(t, w.marked)
	assert.Equal(t, []string{"luksFormat", "open"}, w.commands())
	assert.Contains(t, strings.Join(w.ran, "\n"), "--sector-size 4096")
	assert.Contains(t, strings.Join(w.ran, "\n"), "--allow-discards")

	p, err = w.luks().Open(t.Context(), v)
	require.NoError(t, err, "repeated by another process")
	assert.True(t, p.Unused)
	assert.Len(t, w.commands(), 2)
	require.NoError(t, l.MarkUsed(t.Context(), v.Name, v.Device))
	p, err = l.Open(t.Context(), v)
	require.NoError(t, err)
	assert.False(t, p.Unused)

	require.NoError(t, l.Resize(t.Context(), v.Name))
	require.NoError(t, l.Close(t.Context(), v.Name))
	require.NoError(t, l.Close(t.Context(), v.Name), "it is closed")
	assert.Empty(t, w.mappings)
	require.ErrorIs(t, l.Resize(t.Context(), v.Name), ErrNotOpen)

	w.ran = nil
	v.MayFormat, v.ReadOnly, v.Discards = false, true, false
	p, err = l.Open(t.Context(), v)
	require.NoError(t, err)
	assert.False(t, p.Unused)
	assert.Equal(t, []string{"open"}, w.commands())
	assert.Contains(t, strings.Join(w.ran, "\n"), "--readonly")
	assert.NotContains(t, strings.Join(w.ran, "\n"), "--allow-discards")
	assert.NotContains(t, w.log.String(), "closing an encrypted device", "no device was open with other properties")
}

// After cryptsetup has reported success, Open requires that the mapping exists and leads to the
// device. Otherwise, another device could be mounted.
func TestMappingIsVerifiedAfterOpening(t *testing.T) {
	for name, change := range map[string]func(w *world, mapping string){
		"no mapping":     func(w *world, mapping string) { delete(w.mappings, mapping) },
		"another device": func(w *world, mapping string) { w.mappings[mapping].below = "259:4" },
	} {
		l, w := newWorld(t)
		v := w.volume()
		v.MayFormat = true
		w.after = func(args []string) error {
			if args[0] == "open" {
				w.mu.Lock()
				defer w.mu.Unlock()
				change(w, v.Name)
			}
			return nil
		}
		_, err := l.Open(t.Context(), v)
		require.ErrorContains(t, err, "the kernel has no mapping for it", name)
	}
}

// If a device must not be formatted or opened, the error states the reason, and the device is not
// changed.
func TestRefusalsChangeNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	used := func(w *world) {
		w.header(2, subsystemUsed)
		w.slots = []string{first}
	}
	for name, tt := range map[string]struct {
		prepare func(w *world)
		change  func(v *Volume)
		kind    error
		says    string
	}{
		"wrong passphrase":                       {used, func(v *Volume) { v.Keys = keysOf(second, "") }, ErrWrongPassphrase, "Nothing was changed"},
		"two wrong passphrases":                  {used, func(v *Volume) { v.Keys = keysOf(second, "yet another passphrase") }, ErrWrongPassphrase, SecretPrevious},
		"wrong passphrase, never used":           {func(w *world) { w.header(2, subsystemNew); w.slots = []string{first} }, func(v *Volume) { v.Keys = keysOf(second, "") }, ErrWrongPassphrase, "Nothing was changed"},
		"wrong passphrase, read-only":            {used, func(v *Volume) { v.Keys, v.ReadOnly = keysOf(second, "yet another passphrase"), true }, ErrWrongPassphrase, "Nothing was changed"},
		"header without passphrases":             {func(w *world) { w.header(2, subsystemUsed) }, nil, ErrWrongPassphrase, "Nothing was changed"},
		"mark on a header that is in use":        {func(w *world) { used(w); w.marked = true }, func(v *Volume) { v.Keys = keysOf(second, "") }, ErrWrongPassphrase, "Nothing was changed"},
		"no passphrase":                          {used, func(v *Volume) { v.Keys = nil }, ErrNoPassphrase, "node-publish-secret-name"},
		"LUKS1":                                  {func(w *world) { w.header(1, "") }, nil, ErrNotEncrypted, "cryptsetup convert"},
		"a file system":                          {func(w *world) { w.write(0, []byte("XFSB")) }, nil, ErrNotEncrypted, "holds xfs without encryption"},
		"a file system that is not complete":     {func(w *world) { w.write(0, []byte("XFSB")); w.marked = true }, nil, ErrNotEncrypted, "holds xfs"},
		"data":                                   {func(w *world) { w.write(3*mib, []byte("records")) }, nil, ErrNotEncrypted, "data at offset 3145728"},
		"empty, a copy":                          {nil, func(v *Volume) { v.MayFormat = false }, ErrEmpty, "so it is not formatted"},
		"empty, a copy of an interrupted format": {func(w *world) { w.marked = true }, func(v *Volume) { v.MayFormat, v.MayFinish = false, false }, ErrEmpty, "so it is not formatted"},
		"empty, read-only":                       {nil, func(v *Volume) { v.ReadOnly = true }, ErrEmpty, "read-only"},
		"empty, shared":                          {nil, func(v *Volume) { v.Shared = true }, ErrEmpty, "ReadWriteOnce"},
		"kernel without dm-crypt":                {func(w *world) { w.unsupported = ErrUnsupported }, nil, ErrUnsupported, "not supported"},
		"too small":                              {func(w *world) { require.NoError(w.t, truncate(w.device, 16*mib)) }, nil, ErrInvalid, "use a larger volume"},
	} {
		t.Run(name, func(t *testing.T) {
			l, w := newWorld(t)
			if tt.prepare != nil {
				tt.prepare(w)
			}
			v := w.volume()
			v.MayFormat, v.MayFinish = true, true
			if tt.change != nil {
				tt.change(&v)
			}
			before, marked := w.sum(), w.marked
			for range 2 {
				_, err := l.Open(t.Context(), v)
				require.ErrorIs(t, err, tt.kind)
				require.ErrorContains(t, err, tt.says)
				require.ErrorContains(t, err, w.device)
			}
			assert.Equal(t, before, w.sum())
			assert.Equal(t, marked, w.marked)
			assert.Empty(t, w.mappings)
			for _, c := range w.commands() {
				assert.Equal(t, "open", c)
			}
		})
	}
}

// Open completes a luksFormat that was interrupted at any point, but never formats a device that
// has been used.
func TestInterruptedFormatIsCompleted(t *testing.T) {
	for name, interrupt := range map[string]func(w *world){
		"before luksFormat": func(w *world) { w.before = func([]string) error { return errKilled } },
		"header not written": func(w *world) {
			w.before = func([]string) error {
				w.write(64<<10, []byte("random bytes"))
				return errKilled
			}
		},
		"header without passphrase": func(w *world) {
			w.before = func([]string) error {
				w.header(2, subsystemNew)
				return errKilled
			}
		},
		"mark not removed": func(w *world) { w.after = func([]string) error { return errKilled } },
	} {
		t.Run(name, func(t *testing.T) {
			l, w := newWorld(t)
			interrupt(w)
			onlyCryptsetup(w)
			v := w.volume()
			v.MayFormat = true
			_, err := l.Open(t.Context(), v)
			require.ErrorIs(t, err, errKilled)
			require.True(t, w.marked)

			w.before, w.after = nil, nil
			v.MayFormat = false
			_, err = w.luks().Open(t.Context(), v)
			require.ErrorIs(t, err, ErrEmpty)
			v.MayFinish = true
			p, err := w.luks().Open(t.Context(), v)
			require.NoError(t, err)
			assert.True(t, p.Unused)
			assert.False(t, w.marked)
			assert.Equal(t, []string{first}, w.slots)
		})
	}
}

// The header of a device is not changed if other nodes may have the device open, or if the device
// is opened read-only.
func TestSharedDeviceIsNotRotated(t *testing.T) {
	for _, change := range []func(*Volume){func(v *Volume) { v.Shared = true }, func(v *Volume) { v.ReadOnly = true }} {
		l, w := newWorld(t)
		w.header(2, subsystemUsed)
		w.slots = []string{first}
		v := w.volume()
		v.Keys = keysOf(second, first)
		change(&v)
		_, err := l.Open(t.Context(), v)
		require.NoError(t, err)
		assert.Equal(t, []string{first}, w.slots)
		assert.Equal(t, []string{"open", "open"}, w.commands())
	}
}

// A mapping opened from another device, or with other options, is closed unless it is in use.
func TestOtherMappingsAreClosedUnlessInUse(t *testing.T) {
	for name, m := range map[string]mapping{
		"device removed":             {uuid: "CRYPT-LUKS2-1-x", below: "259:1"},
		"open interrupted":           {uuid: "CRYPT-LUKS2-1-x"},
		"opened read-only":           {uuid: "CRYPT-LUKS2-1-x", below: number, readOnly: true},
		"created by another program": {uuid: "LVM-x", below: "259:1"},
	} {
		t.Run(name, func(t *testing.T) {
			l, w := newWorld(t)
			w.header(2, subsystemUsed)
			w.slots = []string{first}
			v := w.volume()
			w.mappings[v.Name] = &m
			other, err := l.OpenedFromAnother(v.Name, v.Device)
			require.NoError(t, err)
			assert.Equal(t, m.below != number, other)
			w.busy[v.Name] = true
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err = l.Open(ctx, v)
			require.ErrorIs(t, err, ErrBusy)
			assert.Len(t, w.mappings, 1)
			w.busy[v.Name] = false
			_, err = w.luks().Open(t.Context(), v)
			if name == "created by another program" {
				require.ErrorIs(t, err, ErrBusy)
				require.ErrorContains(t, err, "dmsetup remove")
				require.ErrorIs(t, l.Close(t.Context(), v.Name), ErrBusy)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, number, w.mappings[v.Name].below)
			assert.False(t, w.mappings[v.Name].readOnly)
		})
	}
}

// Open resumes a mapping that was left suspended because cryptsetup was killed during a resize.
func TestSuspendedMappingIsResumed(t *testing.T) {
	l, w := newWorld(t)
	v := w.volume()
	suspended := func() { w.mappings[v.Name] = &mapping{uuid: "CRYPT-LUKS2-1-x", below: number, suspended: true} }
	suspended()
	require.NoError(t, l.Resize(t.Context(), v.Name))
	assert.False(t, w.mappings[v.Name].suspended)
	suspended()
	_, err := l.Open(t.Context(), v)
	require.NoError(t, err)
	assert.False(t, w.mappings[v.Name].suspended)
}

// Passphrases never appear in arguments, logs or errors.
func TestPassphrasesAreNeverExposed(t *testing.T) {
	l, w := newWorld(t)
	v := w.volume()
	v.MayFormat = true
	var errs []error
	open := func(current, previous string) {
		v.Keys = keysOf(current, previous)
		_, err := l.Open(t.Context(), v)
		errs = append(errs, err, l.Close(t.Context(), v.Name))
	}
	open(first, "")
	open(second, "")
	open(second, "a third passphrase, as long")
	open(second, first)
	w.before = func([]string) error { return errKilled }
	open(first, second)
	_, err := ReadKeys(map[string]string{SecretPassphrase: first, SecretPrevious: first}, "class")
	errs = append(errs, err)
	_, err = ReadKeys(map[string]string{SecretPassphrase: first + "\n"}, "class")
	errs = append(errs, err)
	shown := strings.Join(w.ran, "\n") + w.log.String() + errors.Join(errs...).Error()
	require.Contains(t, shown, "luksAddKey")
	require.Contains(t, shown, "luksFormat")
	for _, p := range []string{first, second, "third"} {
		assert.NotContains(t, shown, p)
	}
}

// Only a few key derivations run at a time, because each derivation needs a lot of memory.
func TestKeyDerivationsAreLimited(t *testing.T) {
	l, w := newWorld(t)
	w.slots = []string{first}
	var mu sync.Mutex
	running, most := 0, 0
	arrived, proceed := make(chan struct{}, 2*mostDerivations), make(chan struct{})
	w.before = func([]string) error {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		arrived <- struct{}{}
		<-proceed
		mu.Lock()
		running--
		mu.Unlock()
		return nil
	}
	var group sync.WaitGroup
	for range 2 * mostDerivations {
		group.Go(func() {
			ok, err := l.opens(t.Context(), w.device, hostauth.NewSecret(first))
			assert.NoError(t, err)
			assert.True(t, ok)
		})
	}
	for range mostDerivations {
		<-arrived
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errKilled)
	_, err := l.opens(ctx, w.device, hostauth.NewSecret(first))
	require.ErrorIs(t, err, errKilled)
	close(proceed)
	group.Wait()
	assert.Equal(t, mostDerivations, most)
}

// The exit codes are those of cryptsetup(8).
func TestExitCodesMapToErrors(t *testing.T) {
	for code, kind := range map[int]error{0: nil, 2: ErrWrongPassphrase, 5: ErrBusy} {
		l := New(Options{Run: func(hostauth.Secret, string, ...string) (string, int, error) { return "said cryptsetup", code, nil }})
		require.ErrorIs(t, l.cryptsetup(hostauth.Secret{}, "open"), kind, code)
	}
	for code, text := range map[int]string{3: "memory limit", 1: "exit code 1: said cryptsetup", 4: "said cryptsetup"} {
		l := New(Options{Run: func(hostauth.Secret, string, ...string) (string, int, error) { return "said cryptsetup", code, nil }})
		require.ErrorContains(t, l.cryptsetup(hostauth.Secret{}, "open"), text, code)
	}
	_, _, err := run(hostauth.Secret{}, "no-such-program-of-luks")
	require.ErrorIs(t, err, ErrUnsupported)
	out, code, err := run(hostauth.NewSecret("from stdin"), "sh", "-c", "cat; exit 7")
	require.NoError(t, err)
	assert.Equal(t, "from stdin", out)
	assert.Equal(t, 7, code)
	_, _, err = run(hostauth.Secret{}, "sh", "-c", "kill -9 $$")
	require.ErrorContains(t, err, "killed")
	assert.Less(t, len(shorten(strings.Repeat("x", 5000))), 1100)
}
