package volume

import (
	"errors"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// These are the kinds of failure. Each error of this package wraps one of these kinds or an error
// of spdkrpc, and its text includes a remedy.
var (
	// ErrNotFound means that the target has no such volume or snapshot.
	ErrNotFound = errors.New("not found")
	// ErrIncompatible means that a volume or snapshot with this name exists, but has another size,
	// source or type.
	ErrIncompatible = errors.New("exists and is different")
	// ErrNoSpace means that the lvstore has too few free clusters.
	ErrNoSpace = errors.New("not enough free space")
	// ErrOutOfRange means that no size within the requested range is possible in the lvstore.
	ErrOutOfRange = errors.New("size out of range")
	// ErrInUse means that a host is admitted or connected to the volume, or that a snapshot has
	// clones. It is the same value as export.ErrInUse, because callers treat both in the same way.
	ErrInUse = export.ErrInUse
	// ErrTooDeep means that the chain of snapshots below a volume is already at its maximum length.
	ErrTooDeep = errors.New("too many snapshots")
	// ErrBusy means that the volume changed during the call, or that another operation on the
	// volume is in progress. The caller may retry.
	ErrBusy = export.ErrBusy
	// ErrWrongKind means that the object is a snapshot rather than a volume, a volume rather than a
	// snapshot, or not a logical volume.
	ErrWrongKind = errors.New("not of the expected kind")
	// ErrStoreMissing means that an expected lvstore is not loaded, so it is unknown which volumes
	// it contains.
	ErrStoreMissing = errors.New("lvstore missing")
	// ErrDropped means that the target no longer lists the volume, but it is unknown whether the
	// volume was deleted.
	ErrDropped = errors.New("not known to be deleted")
	// ErrDegraded means that the volume exists, but SPDK could not create its bdev. At present, the
	// volume can be neither used nor changed.
	ErrDegraded = errors.New("volume not available")
	// ErrStoreForbidden means that the volume is in an lvstore that the driver must not use.
	ErrStoreForbidden = errors.New("lvstore not permitted")
	// ErrNested means that the lvstore is, or may be, on a logical volume, so that a host may have
	// written the lvstore.
	ErrNested = errors.New("lvstore on a logical volume")
	// ErrLoads means that the target may load an lvstore or RAID that a pod has written to a raw
	// block volume.
	ErrLoads = errors.New("no raw block volumes on this target")
	// ErrExposes means that users of other volumes could read the volume's data after its deletion.
	ErrExposes = errors.New("would expose deleted data")
	// ErrTooOld means that the target's SPDK release cannot safely execute the request.
	ErrTooOld = errors.New("this release of SPDK is too old")
	// ErrNotTogether means that simultaneous snapshots of these volumes are impossible.
	ErrNotTogether = errors.New("cannot be in one group snapshot")
	// ErrReadError means that the disk of an lvstore returned a read error.
	ErrReadError = errors.New("the storage server cannot read the disk")
	// ErrNoChanges means that it is unknown which blocks differ between two snapshots.
	ErrNoChanges = errors.New("the changed blocks are unknown")
	// ErrEncrypted means that a node or a pod encrypts the volume, so offsets in a pod differ from
	// offsets on the target.
	ErrEncrypted = errors.New("encrypted volume")
	// ErrMember means that the snapshot belongs to a group snapshot, and is deleted only together
	// with that group.
	ErrMember = errors.New("part of a group snapshot")
	// ErrCredentials means that the proxy refused the credentials. ErrCertificate means that the
	// proxy's certificate is not trusted. ErrDenied means that the user's roles do not allow a
	// call. Packages that do not import spdkrpc use these names.
	ErrCredentials = spdkrpc.ErrCredentials
	ErrCertificate = spdkrpc.ErrCertificate
	ErrDenied      = error(spdkrpc.Denied)
	// ErrMismatch means that the given snapshots are not the members of the group snapshot.
	ErrMismatch = errors.New("not the snapshots of the group")
)

// notAllowed reports whether the proxy authenticated the user but the user's roles do not allow the
// call.
func notAllowed(err error) bool {
	return errors.Is(err, spdkrpc.Denied) && !errors.Is(err, spdkrpc.ErrCredentials)
}
