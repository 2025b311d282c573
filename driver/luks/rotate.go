package luks

import (
	"context"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// rotate makes the current passphrase the only passphrase of the device. It can be interrupted at
// any point: either the previous or the current passphrase always opens the device, and a retry
// completes the change. It neither reads nor writes the device's data.
func (l *LUKS) rotate(ctx context.Context, v Volume, step *operation.Step) error {
	step.Doing("checking which passphrase opens %s", v.Device)
	current, err := l.opens(ctx, v.Device, v.Keys.Current)
	if err != nil {
		return err
	}
	previous, err := l.opens(ctx, v.Device, v.Keys.Previous)
	if err != nil || !previous {
		return err // if neither passphrase works, opening the device reports the error
	}
	if !current {
		if err := l.addPassphrase(ctx, v, step); err != nil {
			return err
		}
	}
	// Verify the new passphrase first, because cryptsetup would remove even the last passphrase of
	// a header.
	if current, err = l.opens(ctx, v.Device, v.Keys.Current); err != nil {
		return fmt.Errorf("check the new passphrase before the previous one is removed: %w", err)
	}
	if !current {
		return fmt.Errorf("%w: the new passphrase was added, but it does not open the device: nothing was removed", ErrWrongPassphrase)
	}
	step.Doing("removing the previous passphrase of %s", v.Device)
	err = l.deriving(ctx, func() error {
		return l.cryptsetup(v.Keys.Previous, "luksRemoveKey", "--batch-mode", "--key-file=-", v.Device)
	})
	if err != nil {
		return fmt.Errorf("remove the previous passphrase: %w", err)
	}
	l.log.Info("passphrase changed", "device", v.Device, "mapping", v.Name)
	return nil
}

func (l *LUKS) addPassphrase(ctx context.Context, v Volume, step *operation.Step) error {
	step.Doing("adding the new passphrase to %s", v.Device)
	err := inMemory(v.Keys.Current, func(path string) error {
		return l.deriving(ctx, func() error {
			args := append([]string{"luksAddKey", "--type", "luks2", "--batch-mode", "--key-file=-"}, derivation()...)
			return l.cryptsetup(v.Keys.Previous, append(args, v.Device, path)...)
		})
	})
	if err != nil {
		return fmt.Errorf("add the new passphrase: %w", err)
	}
	return nil
}
