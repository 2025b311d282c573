package gate

import (
	"context"
	"errors"

	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// checkExamination refuses calls by tenants' users while the target loads data structures that
// hosts write to volumes, or has not reported whether it does. A loaded lvstore or RAID could
// contain other tenants' objects. Users without a tenant may still make calls, because they must be
// able to disable this loading.
func checkExamination(ctx context.Context, current *Settings, scope *tenancy.Scope, conn *target.Conn) error {
	if current.AcceptLoading {
		return nil
	}
	examination, err := conn.Examination(ctx)
	switch {
	case examination == target.ExaminesListed:
		return nil
	case examination == target.ExaminesAll:
		return &tenancy.Refusal{Tenant: scope.Name, Reason: loadsWhatHostsWrite}
	case ctx.Err() != nil, errors.Is(err, spdkrpc.Unreachable):
		return err
	}
	return &tenancy.Refusal{Tenant: scope.Name, Reason: mayLoadWhatHostsWrite}
}

const (
	loadsWhatHostsWrite = "the target loads what hosts write into volumes (bdev_auto_examine), so tenants are not safe from each other. Nothing was executed. " + switchExaminationOff
	// The next call queries the target again.
	mayLoadWhatHostsWrite = "the target has not reported whether it loads what hosts write into volumes (framework_get_config of bdev). Nothing was executed; retry when the target serves. " + switchExaminationOff
	switchExaminationOff  = "The administrator of this proxy must start the target with bdev_auto_examine set to false (docs/target.md), or accept the risk with target.accept_loading_what_hosts_write"
)
