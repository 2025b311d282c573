package luks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/operation"
)

// A Prober reads devices. *mount.Mounter implements it.
type Prober interface {
	// Contents describes what a device contains: its signature (empty if it has none), the offset
	// of its first data (-1 if it has none), and whether it is marked. It fails if the device
	// cannot be read or is in use, or, if write is true, cannot be written to.
	Contents(ctx context.Context, device string, write bool) (signature string, dataAt int64, marked bool, err error)
	// MarkFormatting sets or removes a mark on an empty device. Contents reports the mark.
	MarkFormatting(device string, set bool) error
}

// Options are the options of [New]. Only Prober is required.
type Options struct {
	Prober Prober
	// Run runs cryptsetup and modprobe. Nil runs the real programs.
	Run Runner
	// Log is the logger. A nil Log means slog.Default().
	Log *slog.Logger
}

// LUKS opens and closes encrypted devices on this node. It is safe for concurrent use.
type LUKS struct {
	prober  Prober
	runTool Runner
	mapper  deviceMapper
	number  func(device string) (string, error)
	log     *slog.Logger
	// operations runs operations on mappings.
	operations  operation.Group
	derivations chan struct{}
}

// mostDerivations is the maximum number of concurrent key derivations. With the headers of this
// package, each derivation takes 64 MiB of memory.
const mostDerivations = 4

// New returns a LUKS for this node.
func New(o Options) *LUKS {
	l := &LUKS{
		prober: o.Prober, runTool: o.Run, mapper: newDMKernel("/dev/mapper"), number: blockNumber, log: o.Log,
		operations: operation.Group{Busy: ErrBusy}, derivations: make(chan struct{}, mostDerivations),
	}
	if l.runTool == nil {
		l.runTool = run
	}
	if l.log == nil {
		l.log = slog.Default()
	}
	return l
}

// A Volume describes how to open an encrypted device.
type Volume struct {
	Name   string // name of the mapping; see [NameOf]
	Device string // the encrypted block device
	// Keys contains the passphrases. If it is nil, the device must already be open.
	Keys     *Keys
	ReadOnly bool
	// Shared means that other nodes may have the device open at the same time. The header of a
	// shared device is not changed.
	Shared bool
	// Discards passes discards on to the encrypted device, which reveals the free blocks to anyone
	// who can read that device.
	Discards bool
	// SectorSize is the size of the encrypted units of a new device in bytes: 512, 4096, or 0 for
	// cryptsetup's choice.
	SectorSize int
	// MayFormat permits writing a LUKS header if the device is empty.
	MayFormat bool
	// MayFinish permits writing a LUKS header if an earlier luksFormat by this package was
	// interrupted.
	MayFinish bool
}

// A Plain describes the plain device of an open encrypted device.
type Plain struct {
	Path string // such as /dev/dm-0
	// Unused means that no data has been stored on the device yet. Its contents are random, and may
	// be overwritten. See [LUKS.MarkUsed].
	Unused bool
}

// idPattern matches volume ids that can be part of a mapping's name. Device mapper escapes none of
// their characters, and they have at most 127 bytes including the prefix.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,117}$`)

// NameOf returns the name of a volume's mapping. Each volume has its own mapping, even a copy with
// the same LUKS header.
func NameOf(volumeID string) (string, error) {
	if !idPattern.MatchString(volumeID) {
		return "", fmt.Errorf("%w: the volume's id %q cannot be part of a mapping's name", ErrInvalid, volumeID)
	}
	return "spdkcsi-" + volumeID, nil
}

// do runs an operation on a mapping.
func do[T any](ctx context.Context, l *LUKS, name string, fn func(context.Context, *operation.Step) (T, error)) (T, error) {
	return operation.Run(ctx, &l.operations, []string{"mapping " + name}, fn)
}

// Open opens an encrypted device, and succeeds if the device is already open. If the device is
// empty and v permits it, Open first writes a LUKS header. Open replaces the previous passphrase
// with the current passphrase, and closes a mapping with the same name that was opened from another
// device.
func (l *LUKS) Open(ctx context.Context, v Volume) (Plain, error) {
	p, err := do(ctx, l, v.Name, func(ctx context.Context, step *operation.Step) (Plain, error) { return l.open(ctx, v, step) })
	if err != nil {
		return Plain{}, fmt.Errorf("open encrypted device %s: %w", v.Device, err)
	}
	return p, nil
}

func (l *LUKS) open(ctx context.Context, v Volume, step *operation.Step) (Plain, error) {
	number, err := l.number(v.Device)
	if err != nil {
		return Plain{}, err
	}
	m, found, err := l.existing(ctx, v, number, step)
	if err != nil {
		return Plain{}, err
	}
	if !found {
		if m, err = l.openClosed(ctx, v, number, step); err != nil {
			return Plain{}, err
		}
	}
	h, err := readHeader(v.Device)
	return Plain{m.path(), h.unused()}, err
}

// existing returns the device's mapping if it is open as requested, and closes any other mapping
// with its name.
func (l *LUKS) existing(ctx context.Context, v Volume, number string, step *operation.Step) (mapping, bool, error) {
	m, found, err := l.mapper.find(v.Name)
	if err != nil || !found {
		return mapping{}, false, err
	}
	if m.below == number && m.ours() && m.readOnly == v.ReadOnly {
		if m.suspended {
			err = l.mapper.resume(v.Name) // an interrupted resize left the mapping suspended
		}
		return m, true, err
	}
	l.log.Warn("closing an encrypted device that was opened for another device or access mode", "mapping", v.Name, "below", m.below, "wanted", number, "readOnly", m.readOnly)
	return mapping{}, false, l.remove(ctx, v.Name, step)
}

func (l *LUKS) openClosed(ctx context.Context, v Volume, number string, step *operation.Step) (mapping, error) {
	if v.Keys == nil {
		return mapping{}, fmt.Errorf("%w: the device has to be opened, but this call has no passphrase: delete the pods that use the volume, so that it is staged again, "+
			"or set csi.storage.k8s.io/node-publish-secret-name too", ErrNoPassphrase)
	}
	step.Doing("reading %s", v.Device)
	format, err := l.mustFormat(ctx, v)
	if err != nil {
		return mapping{}, err
	}
	if _, _, err := l.runTool(hostauth.Secret{}, "modprobe", "dm-crypt"); err != nil {
		l.log.Debug("cannot run modprobe", "error", err) // dm-crypt may be built in, or the kernel may load it
	}
	if err := l.mapper.check(); err != nil {
		return mapping{}, err // check support before the header is written
	}
	if format {
		if err := l.format(ctx, v, step); err != nil {
			return mapping{}, err
		}
	}
	if err := l.unlock(ctx, v, step); err != nil {
		return mapping{}, err
	}
	m, found, err := l.mapper.find(v.Name)
	if err == nil && (!found || m.below != number) {
		err = fmt.Errorf("cryptsetup opened %s, but the kernel has no mapping for it: check whether the node's /dev is mounted", v.Device)
	}
	return m, err
}

// mustFormat reports whether the device needs a LUKS header. It fails if the device must not be
// used.
func (l *LUKS) mustFormat(ctx context.Context, v Volume) (bool, error) {
	signature, dataAt, marked, err := l.prober.Contents(ctx, v.Device, !v.ReadOnly)
	if err != nil {
		return false, err
	}
	h, err := readHeader(v.Device)
	if err != nil {
		return false, err
	}
	const encrypted = "crypto_LUKS" // blkid's name for LUKS
	const howto = "if you do not need the data, wipe it by hand (wipefs --all), or delete the volume; to keep it, use a StorageClass without encryption"
	// An interrupted luksFormat may have written only random bytes, because it writes random bytes
	// before the header.
	interrupted := marked && (signature == "" || signature == encrypted && h.unused())
	switch {
	case interrupted:
	case signature == encrypted && h.version == 1:
		return false, fmt.Errorf("%w: it has a LUKS1 header, and only LUKS2 is supported: convert it with cryptsetup convert", ErrNotEncrypted)
	case signature == encrypted:
		return false, nil
	case signature != "":
		return false, fmt.Errorf("%w: the volume's class requires encryption, but the device holds %s without encryption: nothing was changed; %s", ErrNotEncrypted, signature, howto)
	case dataAt >= 0:
		return false, fmt.Errorf("%w: the volume's class requires encryption, but the device has data at offset %d and no LUKS header: nothing was changed; %s", ErrNotEncrypted, dataAt, howto)
	}
	switch {
	case !v.MayFormat && !(v.MayFinish && interrupted):
		return false, fmt.Errorf("%w: it should have a LUKS header, because it is a copy of a volume or was used before, so it is not formatted: check whether the target has lost its data, or the source was empty. The driver's manual says what to do about a volume that is not formatted", ErrEmpty)
	case v.ReadOnly:
		return false, fmt.Errorf("%w: it is used read-only, so it is not encrypted: use it read-write once", ErrEmpty)
	case v.Shared:
		return false, fmt.Errorf("%w: several nodes may use it at a time, and each would encrypt it with its own key, so it is not encrypted: use a volume that was encrypted with ReadWriteOnce, or a copy of such a volume", ErrEmpty)
	}
	return true, nil
}

// format writes a LUKS header. Until the header is complete, a mark near the end of the device
// records that the device is unused.
func (l *LUKS) format(ctx context.Context, v Volume, step *operation.Step) error {
	size, err := sizeOf(v.Device)
	if err != nil {
		return err
	}
	const headerBytes, least = 16 << 20, 1 << 20 // the space for luksFormat, and the minimum that must remain
	if size < headerBytes+least {
		return fmt.Errorf("%w: %s has %d bytes, of which LUKS2 needs %d: use a larger volume", ErrInvalid, v.Device, size, headerBytes)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.prober.MarkFormatting(v.Device, true); err != nil {
		return fmt.Errorf("before luksFormat: %w", err)
	}
	step.Doing("luksFormat %s", v.Device)
	l.log.Info("encrypting a new device", "device", v.Device, "mapping", v.Name)
	if err := l.deriving(ctx, func() error { return l.cryptsetup(v.Keys.Current, formatArgs(v)...) }); err != nil {
		return err
	}
	if err := l.prober.MarkFormatting(v.Device, false); err != nil {
		return fmt.Errorf("after luksFormat: %w", err)
	}
	return nil
}

// unlock opens a device that has a LUKS header.
func (l *LUKS) unlock(ctx context.Context, v Volume, step *operation.Step) error {
	fixed := v.ReadOnly || v.Shared // the header must not be changed
	if !v.Keys.Previous.IsZero() && !fixed {
		if err := l.rotate(ctx, v, step); err != nil {
			return err
		}
	}
	with := func(passphrase hostauth.Secret) error {
		step.Doing("opening %s", v.Device)
		return l.deriving(ctx, func() error { return l.cryptsetup(passphrase, openArgs(v)...) })
	}
	err := with(v.Keys.Current)
	if errors.Is(err, ErrWrongPassphrase) && !v.Keys.Previous.IsZero() && fixed {
		err = with(v.Keys.Previous)
	}
	if errors.Is(err, ErrWrongPassphrase) {
		return fmt.Errorf("%w: %s does not open the device's LUKS header. Nothing was changed. Check which Secret the volume was created with; a copy has the passphrases of its source. "+
			"If the passphrase was changed, put the old one into %s", ErrWrongPassphrase, SecretPassphrase, SecretPrevious)
	}
	return err
}

// OpenedFromAnother reports whether a mapping with this name was opened from a different device.
// That device was the volume's previous device, which the kernel has removed.
func (l *LUKS) OpenedFromAnother(name, device string) (bool, error) {
	number, err := l.number(device)
	if err != nil {
		return false, err
	}
	m, found, err := l.mapper.find(name)
	return found && m.below != number, err
}

// MarkUsed removes the mark of an unused device. Call MarkUsed after creating a file system, before
// the device is first used.
func (l *LUKS) MarkUsed(ctx context.Context, name, device string) error {
	_, err := do(ctx, l, name, func(_ context.Context, step *operation.Step) (struct{}, error) {
		step.Doing("changing the header of %s", device)
		return struct{}{}, l.cryptsetup(hostauth.Secret{}, "config", "--batch-mode", "--subsystem", subsystemUsed, device)
	})
	if err != nil {
		return fmt.Errorf("mark encrypted device %s as used: %w", device, err)
	}
	return nil
}

// Resize grows the plain device of an open encrypted device to the size that the encrypted device
// allows.
func (l *LUKS) Resize(ctx context.Context, name string) error {
	_, err := do(ctx, l, name, func(_ context.Context, step *operation.Step) (struct{}, error) {
		m, found, err := l.mapper.find(name)
		if err == nil && !found {
			err = ErrNotOpen
		}
		if err == nil && m.suspended {
			err = l.mapper.resume(name)
		}
		if err != nil {
			return struct{}{}, err
		}
		step.Doing("cryptsetup resize %s", name)
		return struct{}{}, l.cryptsetup(hostauth.Secret{}, "resize", "--batch-mode", name)
	})
	if err != nil {
		return fmt.Errorf("resize encrypted device %s: %w", name, err)
	}
	return nil
}

// Close closes a device. It succeeds if the device is not open.
func (l *LUKS) Close(ctx context.Context, name string) error {
	_, err := do(ctx, l, name, func(ctx context.Context, step *operation.Step) (struct{}, error) {
		return struct{}{}, l.remove(ctx, name, step)
	})
	if err != nil {
		return fmt.Errorf("close encrypted device %s: %w", name, err)
	}
	return nil
}

// remove removes a mapping if it exists. While the mapping is in use, remove retries for a few
// seconds, because udev reads a device after each change.
func (l *LUKS) remove(ctx context.Context, name string, step *operation.Step) error {
	const tries, delay = 20, 100 * time.Millisecond
	m, found, err := l.mapper.find(name)
	if err != nil || !found {
		return err
	}
	if !m.ours() {
		return fmt.Errorf("%w: the mapping %s is not a LUKS2 device: find out which program created it, and remove it by hand (dmsetup remove)", ErrBusy, name)
	}
	step.Doing("closing the mapping %s", name)
	for range tries {
		if err = l.mapper.remove(name); !errors.Is(err, ErrBusy) {
			return err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
	return err
}

// blockNumber returns the number of a block device in the format major:minor.
func blockNumber(device string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return "", fmt.Errorf("stat %s: %w", device, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return "", fmt.Errorf("%w: %s is not a block device", ErrInvalid, device)
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), nil
}

func sizeOf(device string) (int64, error) {
	f, err := os.Open(device)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.Seek(0, io.SeekEnd)
}
