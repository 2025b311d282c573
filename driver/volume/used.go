package volume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A volume that was attached once may hold data, and must never be formatted again, even if it reads as empty. Of thin
// volumes newer releases count the clusters, which is evidence (see Pristine). Of all others SPDK keeps nothing that tells,
// so their own name does: when they are detached, ".used" is appended to it. A name is changed in one atomic step, lasts,
// and leaves the volume's UUID, and with it its bdev, its exports and its connections as they are.
//
// It follows that a volume has one of two names, and that SPDK would accept a second volume of the first. No call makes
// one: before a volume is created it is looked for under both names.
const usedSuffix = ".used"

// usedName is the name of a lvol after its volume was used.
func usedName(lvol string) string {
	if len(lvol)+len(usedSuffix) <= nameMax {
		return lvol + usedSuffix
	}
	sum := sha256.Sum256([]byte(lvol))
	id := hex.EncodeToString(sum[:16])
	return lvol[:nameMax-len(usedSuffix)-len(id)-1] + "-" + id + usedSuffix
}

func (v Volume) used() bool { return strings.HasSuffix(v.Name, usedSuffix) }

// Remember notes that a volume was attached, if only its name can tell later. It succeeds when there is no such volume.
func (s *Service) Remember(ctx context.Context, id string) error {
	v, err := s.GetVolume(ctx, id)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrWrongKind) {
		return nil
	}
	var known bool
	if err == nil {
		_, known, err = s.Pristine(ctx, v)
	}
	if err != nil {
		return fmt.Errorf("note that volume %s was in use: %w", id, err)
	}
	if known {
		return nil
	}
	failed := s.rpc.BdevLvolRename(ctx, spdkrpc.BdevLvolRenameParams{OldName: v.UUID, NewName: usedName(v.Name)})
	if failed == nil {
		return nil
	}
	if readable(failed) {
		if now, err := s.lookUp(ctx, v.UUID); err == nil && now.used() {
			return nil
		}
	}
	return fmt.Errorf("target %s: note that %s was in use, by renaming it to %s: %w", s.Name, v, usedName(v.Name), failed)
}
