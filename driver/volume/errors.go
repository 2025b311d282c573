package volume

import (
	"errors"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Kinds of failure. Errors of this package wrap one of them or an error of spdkrpc; the text says
// what to do.
var (
	// ErrNotFound: the target has no such volume or snapshot.
	ErrNotFound = errors.New("not found")
	// ErrIncompatible: a volume or snapshot with this name exists, and has another size, source or
	// type.
	ErrIncompatible = errors.New("exists and is different")
	// ErrNoSpace: the lvstore has too few free clusters.
	ErrNoSpace = errors.New("not enough free space")
	// ErrOutOfRange: the lvstore can create no size within the requested range.
	ErrOutOfRange = errors.New("size out of range")
	// ErrInUse: a host is admitted or connected to the volume, or a snapshot has clones. It is the
	// same kind as in package export, because callers treat both cases alike.
	ErrInUse = export.ErrInUse
	// ErrTooDeep: the chain of snapshots below a volume must not become longer.
	ErrTooDeep = errors.New("too many snapshots")
	// ErrBusy: the volume changed during the call, or another operation on it is in progress. Try
	// again.
	ErrBusy = export.ErrBusy
	// ErrWrongKind: the object is a snapshot and not a volume, a volume and not a snapshot, or not
	// a logical volume.
	ErrWrongKind = errors.New("not of the expected kind")
	// ErrStoreMissing: an expected lvstore is not loaded, so it is unknown which volumes it has.
	ErrStoreMissing = errors.New("lvstore missing")
	// ErrDropped: the target no longer lists the volume, but it is unknown whether it was deleted.
	ErrDropped = errors.New("not known to be deleted")
	// ErrDegraded: the volume exists, but SPDK could not create its bdev, so it can be neither used
	// nor changed now.
	ErrDegraded = errors.New("volume not available")
	// ErrStoreForbidden: the volume is in an lvstore that the driver may not use.
	ErrStoreForbidden = errors.New("lvstore not permitted")
	// ErrNested: the lvstore is, or may be, on a logical volume. A host may have written it.
	ErrNested = errors.New("lvstore on a logical volume")
	// ErrLoads: the target may load what a pod writes into a raw block volume.
	ErrLoads = errors.New("no raw block volumes on this target")
	// ErrExposes: others could read the volume's data after its deletion.
	ErrExposes = errors.New("would expose deleted data")
	// ErrTooOld: the target's SPDK release cannot do this safely.
	ErrTooOld = errors.New("this release of SPDK is too old")
	// ErrNotTogether: no snapshot of these volumes can be taken at one moment.
	ErrNotTogether = errors.New("cannot be in one group snapshot")
	// ErrNoChanges: it is unknown which blocks of a snapshot differ from another one.
	ErrNoChanges = errors.New("the changed blocks are unknown")
	// ErrEncrypted: pods see other offsets of the volume than the target.
	ErrEncrypted = errors.New("encrypted volume")
	// ErrMember: the snapshot belongs to a group snapshot, and is deleted with it.
	ErrMember = errors.New("part of a group snapshot")
	// ErrCredentials, ErrCertificate and ErrDenied: the proxy refused the credentials, its
	// certificate is not trusted, or the user's roles do not allow a call. They have other names
	// for packages that do not know SPDK's RPC.
	ErrCredentials = spdkrpc.ErrCredentials
	ErrCertificate = spdkrpc.ErrCertificate
	ErrDenied      = error(spdkrpc.Denied)
	// ErrMismatch: these are not the snapshots of the group snapshot.
	ErrMismatch = errors.New("not the snapshots of the group")
)

// notAllowed reports whether the proxy knows the user, and the user's roles do not allow the call.
func notAllowed(err error) bool {
	return errors.Is(err, spdkrpc.Denied) && !errors.Is(err, spdkrpc.ErrCredentials)
}
