package tenancy

import (
	"errors"
	"fmt"
)

// A Refusal says why a tenant's call was refused. It does not reveal what exists on the target.
type Refusal struct {
	Tenant string
	Reason string // what is wrong, and what to do
}

func (r *Refusal) Error() string { return fmt.Sprintf("tenant %s: %s", r.Tenant, r.Reason) }

// A QuotaError says which quota of a tenant a call would exceed.
type QuotaError struct {
	Tenant            string
	What              string // bytes, volumes or subsystems
	Used, Asked, Most uint64
}

func (e *QuotaError) Error() string {
	if e.What == "bytes" {
		return fmt.Sprintf("tenant %s: the quota is %s, of which %s are used, and this call needs %s more", e.Tenant, size(e.Most), size(e.Used), size(e.Asked))
	}
	return fmt.Sprintf("tenant %s: the quota is %d %s, of which %d are used, and this call needs %d more", e.Tenant, e.Most, e.What, e.Used, e.Asked)
}

// ErrBusy means that earlier calls of the same tenant, for which this one must wait, take too long.
// Nothing was executed.
var ErrBusy = errors.New("earlier calls of this tenant that count against its quota take too long")

// size formats bytes in GiB, or in MiB or bytes if that is not exact: a rounded message could say
// that a refused call fits.
func size(bytes uint64) string {
	for _, unit := range []struct {
		name  string
		bytes uint64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}} {
		if bytes%unit.bytes == 0 && bytes > 0 {
			return fmt.Sprintf("%d %s", bytes/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}

func (s *Scope) refuse(format string, args ...any) error {
	return &Refusal{Tenant: s.Name, Reason: fmt.Sprintf(format, args...)}
}

// An unreadableError is about an answer of the target that does not match the schema.
type unreadableError struct {
	method string
	err    error
}

func (e *unreadableError) Error() string {
	return "read the target's answer to " + e.method + ": " + e.err.Error()
}

func (e *unreadableError) Unwrap() error { return e.err }
