package tenancy

import (
	"errors"
	"fmt"
)

// A Refusal explains why a tenant's call was refused. It does not reveal which objects exist on the
// target.
type Refusal struct {
	Tenant string
	Reason string // the problem and the remedy
}

func (r *Refusal) Error() string { return fmt.Sprintf("tenant %s: %s", r.Tenant, r.Reason) }

// A QuotaError reports which quota of a tenant a call would exceed.
type QuotaError struct {
	Tenant            string
	What              string // bytes, volumes, subsystems, hosts or listeners
	Used, Asked, Most uint64
}

func (e *QuotaError) Error() string {
	key, most, used, asked := e.What, fmt.Sprintf("%d %s", e.Most, e.What), fmt.Sprint(e.Used), fmt.Sprint(e.Asked)
	if e.What == "bytes" {
		key, most, used, asked = "gib", size(e.Most), size(e.Used), size(e.Asked)
	}
	return fmt.Sprintf("tenant %s: the quota is %s, of which %s are used, and this call needs %s more: %s, or ask the administrator of this proxy for a larger quota (quota.%s)",
		e.Tenant, most, used, asked, freedBy[e.What], key)
}

// freedBy maps each quota to what a tenant can do to use less of it.
var freedBy = map[string]string{
	"bytes":      "delete volumes or snapshots",
	"volumes":    "delete volumes or snapshots",
	"subsystems": "delete subsystems that are not needed (nvmf_delete_subsystem). If a volume was deleted before its subsystem, only an administrator may see and delete the subsystem, which still counts (spdk-proxy unexport)",
	"hosts":      "remove hosts that no longer need their volumes (nvmf_subsystem_remove_host)",
	"listeners":  "remove listeners that are not needed (nvmf_subsystem_remove_listener)",
}

// ErrBusy means that the call waited too long for earlier calls by the same tenant. Nothing was
// executed.
var ErrBusy = errors.New("earlier calls of this tenant that count against its quota take too long")

// size formats bytes in the largest of the units GiB, MiB and bytes that represents the number
// exactly. With a rounded number, a call that was refused could seem to fit.
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

// An unreadableError means that a response from the target violates the schema.
type unreadableError struct {
	method string
	err    error
}

func (e *unreadableError) Error() string {
	return "read the target's response to " + e.method + ": " + e.err.Error()
}

func (e *unreadableError) Unwrap() error { return e.err }
