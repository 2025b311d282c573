package volume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A volume that was attached once may contain data, and must never be formatted again, even if it reads as empty. For thin
// volumes, newer releases count the clusters, which tells whether they were written to (see Pristine). For all other volumes
// SPDK stores nothing that tells. So the driver appends ".used" to their names when they are detached. Renaming is one
// atomic and durable step that does not change the volume's UUID, bdev, exports and connections.
//
// So a volume has one of two names, and SPDK would accept a second volume with the first name. The driver looks for a volume
// under both names before it creates it, and afterwards, because another controller may have created, attached and detached
// it in between (see findCreated).
const usedSuffix = ".used"

// usedName returns the name of an lvol after its volume was used.
func usedName(lvol string) string {
	if len(lvol)+len(usedSuffix) <= nameMax {
		return lvol + usedSuffix
	}
	sum := sha256.Sum256([]byte(lvol))
	id := hex.EncodeToString(sum[:16])
	return lvol[:nameMax-len(usedSuffix)-len(id)-1] + "-" + id + usedSuffix
}

func (v Volume) used() bool { return strings.HasSuffix(v.Name, usedSuffix) }

// findIn returns the volumes in an lvstore that have the name of an lvol, or the name that it has after use.
func (s *Service) findIn(ctx context.Context, st Store, lvol string) (found []Volume, err error) {
	names := []string{lvol, usedName(lvol)}
	return s.eachName(names, func(name string) (Volume, error) {
		v, err := s.lookUp(ctx, st.Name+"/"+name)
		if !errors.Is(err, ErrNotFound) {
			return v, err
		}
		listed, failed := s.listedWithoutBdev(ctx, st, name, names)
		if listed == nil && failed == nil {
			return v, err
		}
		if failed != nil {
			return v, failed
		}
		return s.lookUpListed(ctx, *listed)
	})
}

// eachName looks for a volume under each of its names, in the order in which it gets them, so that a volume that is renamed
// in between is found by the second look-up or by both.
func (s *Service) eachName(names []string, lookUp func(name string) (Volume, error)) (found []Volume, err error) {
	for _, name := range names {
		v, err := lookUp(name)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, err
		case len(found) > 0 && found[0].UUID == v.UUID:
			found[0] = v
		default:
			found = append(found, v)
		}
	}
	return found, nil
}

// findCreated returns the volume with the name of an lvol after a call created it, or tried to. id is the UUID that SPDK
// answered, or empty. If a used volume with that name exists too, it was created first, because otherwise SPDK would have
// refused its name. Then findCreated deletes the volume id, of which no caller knows.
func (s *Service) findCreated(ctx context.Context, store, lvol, id string) (Volume, error) {
	found, err := s.eachName([]string{lvol, usedName(lvol)}, func(name string) (Volume, error) { return s.lookUp(ctx, store+"/"+name) })
	switch {
	case err != nil:
		return Volume{}, err
	case len(found) == 0:
		return Volume{}, fmt.Errorf("target %s: volume %s/%s: %w", s.Name, store, lvol, ErrNotFound)
	case len(found) == 1:
		return found[0], nil
	case found[0].UUID != id:
		return Volume{}, s.duplicateError(lvol, found)
	}
	if err := s.remove(ctx, found[0]); err != nil {
		return Volume{}, fmt.Errorf("delete the second volume named %q: %w", lvol, err)
	}
	return found[1], nil
}

func (s *Service) duplicateError(name string, found []Volume) error {
	return fmt.Errorf("target %s: %w: volume %q exists twice, as %s and %s: rename or delete one of them", s.Name, ErrIncompatible, name, found[0], found[1])
}

// MarkUsed records in a volume's name that it was attached, unless the target knows whether it was written to. It succeeds
// if the volume does not exist.
func (s *Service) MarkUsed(ctx context.Context, id string) error {
	v, err := s.GetVolume(ctx, id)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrWrongKind) {
		return nil
	}
	var known bool
	if err == nil {
		_, known, err = s.Pristine(ctx, v)
	}
	if err != nil {
		return fmt.Errorf("record that volume %s was used: %w", id, err)
	}
	if known {
		return nil
	}
	failed := s.rpc.BdevLvolRename(ctx, spdkrpc.BdevLvolRenameParams{OldName: v.UUID, NewName: usedName(v.Name)})
	if failed == nil {
		return nil
	}
	if readback.Clarifies(failed) {
		if now, err := s.lookUp(ctx, v.UUID); err == nil && now.used() {
			return nil
		}
	}
	return fmt.Errorf("target %s: record that %s was used, by renaming it to %s: %w", s.Name, v, usedName(v.Name), failed)
}
