package volume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A volume that has been attached may contain data, and must never be formatted again, even if it
// appears to be empty. Newer releases count the clusters of thin volumes, which shows whether a
// host has written to a volume (see Pristine). For all other volumes, SPDK stores no such record,
// so the driver appends ".used" to the name of the volume when it is detached. Renaming is a single
// atomic and durable step that does not affect the volume's UUID, bdev, exports or connections.
//
// A volume therefore has one of two names, and once it has the second name, SPDK would accept
// another volume with the first name. The driver looks for a volume under both names before and
// after creating it, because another controller may have created, attached and detached the volume
// in the meantime (see findCreated).
const usedSuffix = ".used"

// usedName returns the name that an lvol has after the volume has been used.
func usedName(lvol string) string {
	if len(lvol)+len(usedSuffix) <= nameMax {
		return lvol + usedSuffix
	}
	sum := sha256.Sum256([]byte(lvol))
	id := hex.EncodeToString(sum[:16])
	return lvol[:nameMax-len(usedSuffix)-len(id)-1] + "-" + id + usedSuffix
}

func (v Volume) used() bool { return strings.HasSuffix(v.Name, usedSuffix) }

// mayBeRenamed reports whether the driver renames thick or thin volumes when they are detached. It
// does not rename thin volumes if SPDK counts their clusters (see Pristine).
func (s *Service) mayBeRenamed(ctx context.Context, thick bool) (bool, error) {
	if thick {
		return true, nil
	}
	release, err := s.rpc.Release(ctx)
	if err != nil {
		return false, fmt.Errorf("target %s: read the target's release: %w", s.Name, err)
	}
	return !release.Has(rpcschema.CountsClusters), nil
}

// findIn returns the volumes in an lvstore that have the name lvol, or the name that such a volume
// has after use.
func (s *Service) findIn(ctx context.Context, st Store, lvol string, mayBeRenamed bool) (found []Volume, err error) {
	names := []string{lvol, usedName(lvol)}
	if found, err = s.lookUpEach(ctx, st.Name, names, mayBeRenamed); err != nil || len(found) > 0 {
		return found, err
	}
	listed, err := s.listedWithoutBdev(ctx, st, names)
	if listed == nil || err != nil {
		return nil, err
	}
	v, err := s.lookUpListed(ctx, *listed)
	if err != nil {
		return nil, err
	}
	return []Volume{v}, nil
}

// lookUpEach looks for a volume under each of its names in an lvstore. If another call may rename
// the volume, it tries the names one at a time, so that at least one look-up finds the volume.
func (s *Service) lookUpEach(ctx context.Context, store string, names []string, mayBeRenamed bool) (found []Volume, err error) {
	each := make([]*Volume, len(names))
	g, ctx := errgroup.WithContext(ctx)
	if mayBeRenamed {
		g.SetLimit(1)
	}
	for i, name := range names {
		g.Go(func() error {
			v, err := s.lookUp(ctx, store+"/"+name)
			if err == nil {
				each[i] = &v
			}
			return ignore(err, ErrNotFound)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, v := range each {
		switch {
		case v == nil:
		case len(found) > 0 && found[0].UUID == v.UUID:
			found[0] = *v
		default:
			found = append(found, *v)
		}
	}
	return found, nil
}

// findCreated returns the volume named lvol after this call has created it or tried to. id is the
// UUID that SPDK returned for the volume, or empty. If a used volume with that name also exists, it
// was created first, because otherwise SPDK would have refused its name. In that case, findCreated
// deletes the volume id, which no caller has received.
//
// mayBeRenamed is true if a concurrent call may rename the volume.
func (s *Service) findCreated(ctx context.Context, store, lvol, id string, mayBeRenamed bool) (Volume, error) {
	found, err := s.lookUpEach(ctx, store, []string{lvol, usedName(lvol)}, mayBeRenamed)
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

// Detach ends the export of a volume like Unexport, and records that the volume has been used.
func (s *Service) Detach(ctx context.Context, id string, h *export.Host) error {
	var toMark *Volume
	var unknown error
	var reading sync.WaitGroup
	reading.Go(func() { toMark, unknown = s.unmarked(ctx, id) })
	err := s.Unexport(ctx, id, h) // end the export even if the volume cannot be read
	reading.Wait()
	if err != nil || unknown != nil || toMark == nil {
		return errors.Join(err, unknown)
	}
	return s.markUsed(ctx, *toMark)
}

// unmarked returns a volume if its name must be changed to record that it has been used. It returns
// nil if the volume does not exist, or if the target itself can determine whether a host has
// written to the volume.
func (s *Service) unmarked(ctx context.Context, id string) (*Volume, error) {
	v, err := s.GetVolume(ctx, id)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrWrongKind) {
		return nil, nil
	}
	var known bool
	if err == nil {
		_, known, err = s.Pristine(ctx, v)
	}
	if err != nil {
		return nil, fmt.Errorf("find out whether volume %s was used: %w", id, err)
	}
	if known {
		return nil, nil
	}
	return &v, nil
}

// markUsed records in a volume's name that the volume has been attached.
func (s *Service) markUsed(ctx context.Context, v Volume) error {
	failed := s.rpc.BdevLvolRename(ctx, spdkrpc.BdevLvolRenameParams{OldName: v.UUID, NewName: usedName(v.Name)})
	if failed == nil {
		return nil
	}
	if readback.Clarifies(failed) {
		if now, err := s.lookUp(ctx, v.UUID); err == nil && now.used() {
			return nil
		}
	}
	return fmt.Errorf("target %s: record that %s was used, by renaming it to %s: %w", s.Name, v, usedName(v.Name), deletedMeanwhile(v.String(), failed))
}
