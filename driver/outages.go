package driver

import (
	"context"
	"errors"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// outageKinds contains the errors that every call returns while a target is down, with the names of
// these errors in the log. The first match wins.
var outageKinds = []struct {
	kind error
	name string
}{
	{spdkrpc.ErrCredentials, "credentials refused"},
	{spdkrpc.ErrCertificate, "certificate not trusted"},
	{spdkrpc.Unreachable, "unreachable"},
	{connect.ErrUnreachable, "unreachable"},
	{spdkrpc.OutcomeUnknown, "no response"},
	{connect.ErrTimeout, "no response"},
	{mount.ErrUnreadable, "no response"},
	{context.DeadlineExceeded, "no response"},
}

// Outage returns the target that made a call fail, and the kind of failure if every call to that
// target may fail in this way. Otherwise kind is empty. volume is the id of the call's volume, for
// errors that do not name a target; it may be empty.
func Outage(err error, volume string) (target, kind string) {
	if target = targetOf(err, volume); target == "" {
		return "", ""
	}
	var e *spdkrpc.Error
	if errors.As(err, &e) && e.Code == jsonrpc.CodeTooMany { // the target responds; this call exceeds a limit
		return target, ""
	}
	for _, k := range outageKinds {
		if errors.Is(err, k.kind) {
			return target, k.name
		}
	}
	return target, ""
}

func targetOf(err error, volume string) string {
	var failed *request.TargetError
	if errors.As(err, &failed) {
		return failed.Target
	}
	id, _ := request.ParseVolumeID(volume)
	return id.Target
}
