package execute

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// TargetInfo serves spdkgate_target_get_info. If the target does not report which bdevs it
// examines, the result omits this information.
func (e *Executor) TargetInfo(ctx context.Context, c Command) (json.RawMessage, error) {
	info := spdkrpc.ProxyTargetInfo{Acknowledged: c.AcceptLoading}
	examination, err := c.Conn.Examination(ctx)
	if ctx.Err() != nil {
		return nil, err
	}
	if examination != target.ExaminationUnknown {
		info.ExaminesVolumes = new(examination == target.ExaminesAll)
		if state := e.Target.State(); state.Examination == examination {
			info.Since = new(state.ExaminationSince.UTC().Format(time.RFC3339))
		}
	}
	return json.Marshal(info)
}
