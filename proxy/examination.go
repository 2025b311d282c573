package proxy

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spdkgate/spdkgate/proxy/target"
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
