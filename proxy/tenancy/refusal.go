package tenancy

import (
	"errors"
	"fmt"
)

// A Refusal says why a tenant's call was not made. It tells nothing of what
// exists on the target.
type Refusal struct {
	Tenant string
	Reason string // what is wrong and what would be right
}

func (r *Refusal) Error() string { return fmt.Sprintf("tenant %s: %s", r.Tenant, r.Reason) }

// A QuotaError says which bound of a tenant a call would pass.
type QuotaError struct {
	Tenant            string
	What              string // bytes, volumes or subsystems
	Used, Asked, Most uint64
}

func (e *QuotaError) Error() string {
	if e.What == "bytes" {
		return fmt.Sprintf("tenant %s: the quota is %s, of which %s are taken, and this takes %s more", e.Tenant, size(e.Most), size(e.Used), size(e.Asked))
	}
	return fmt.Sprintf("tenant %s: the quota is %d %s, of which %d are taken, and this takes %d more", e.Tenant, e.Most, e.What, e.Used, e.Asked)
}

// ErrBusy means that calls of the same tenant, which wait for each other, take
// too long. Nothing was executed.
var ErrBusy = errors.New("calls of this tenant that count against its quota wait for each other, and those before this one take too long")

// size writes bytes in the unit of the configuration's keys, or in MiB where GiB would
// round: a message that rounds could say that what is refused fits.
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

// An unreadableError is an answer of the target that is not what the schema says.
type unreadableError struct {
	method string
	err    error
}

func (e *unreadableError) Error() string { return e.method + ": the target's answer: " + e.err.Error() }

func (e *unreadableError) Unwrap() error { return e.err }
