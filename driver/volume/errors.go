package volume

import (
	"errors"

	"github.com/spdkgate/spdkgate/driver/export"
)

// Kinds of failure. Errors of this package wrap one of them or an error of spdkrpc; the text says what to do.
var (
	// ErrNotFound: the target has no such volume or snapshot.
	ErrNotFound = errors.New("not found")
	// ErrIncompatible: the name is taken by a volume or snapshot of another size or source.
	ErrIncompatible = errors.New("exists and is different")
	// ErrNoSpace: the lvstore has too few free clusters.
	ErrNoSpace = errors.New("not enough free space")
	// ErrOutOfRange: no size that the lvstore can make lies within the requested range.
	ErrOutOfRange = errors.New("size out of range")
	// ErrInUse: a host is admitted or connected to the volume, or a snapshot has clones. It is the kind of package export:
	// a caller that cannot delete a volume need not know which of both it was.
	ErrInUse = export.ErrInUse
	// ErrTooDeep: a volume has as many snapshots above it as is safe.
	ErrTooDeep = errors.New("too many snapshots")
	// ErrBusy: the volume changed during the call, or another operation on it is in progress. Try again.
	ErrBusy = export.ErrBusy
	// ErrWrongKind: a snapshot where a volume was expected, the other way round, or a bdev that is not a logical volume.
	ErrWrongKind = errors.New("not of the expected kind")
	// ErrStoreMissing: an lvstore that should be loaded is not, so its volumes are unknown.
	ErrStoreMissing = errors.New("lvstore missing")
	// ErrDegraded: the volume exists, and SPDK could make no bdev of it, so that it can be neither used nor changed now.
	ErrDegraded = errors.New("volume not available")
	// ErrStoreForbidden: the volume lies in an lvstore that is not the driver's.
	ErrStoreForbidden = errors.New("lvstore not permitted")
	// ErrExposes: what the volume holds could be read by others once it is deleted.
	ErrExposes = errors.New("would expose deleted data")
)
