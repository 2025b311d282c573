package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// targetInfoMethod returns what the driver needs to know about the target. Tenants' users may
// always call it.
const targetInfoMethod = "spdkgate_target_get_info"

// targetInfo answers targetInfoMethod. If the target does not say whether it examines volumes, the
// answer does not say so either.
func (s *Server) targetInfo(ctx context.Context, c command) (json.RawMessage, error) {
	info := spdkrpc.ProxyTargetInfo{Acknowledged: c.settings.acceptLoading}
	examination, err := c.conn.Examination(ctx)
	if ctx.Err() != nil {
		return nil, err
	}
	if examination != target.ExaminationUnknown {
		info.ExaminesVolumes = new(examination == target.ExaminesAll)
		if state := s.target.State(); state.Examination == examination {
			info.Since = new(state.ExaminationSince.UTC().Format(time.RFC3339))
		}
	}
	return json.Marshal(info)
}

// checkExamination refuses calls of tenants' users while the target loads what hosts write into
// volumes, or does not say whether it does: an lvstore or RAID that a host wrote could contain
// objects of other tenants. Users without a tenant may still call, so that they can change it.
func (s *Server) checkExamination(ctx context.Context, now *settings, scope *tenancy.Scope, conn *target.Conn, method string) error {
	if scope == nil || now.acceptLoading || method == targetInfoMethod {
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
	// The proxy asks again with the next call.
	mayLoadWhatHostsWrite = "the target has not answered whether it loads what hosts write into volumes (framework_get_config of bdev). Nothing was executed; retry when the target serves. " + switchExaminationOff
	switchExaminationOff  = "The administrator of this proxy must start the target with bdev_auto_examine set to false (docs/target.md), or accept the risk with target.accept_loading_what_hosts_write"
)
