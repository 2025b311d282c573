package quiesce

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Target is one process of the target, on a connection that ends with it.
type Target struct {
	Caller  spdkrpc.Caller
	Process string // see Options.Process
	Release rpcschema.Release
	Close   func() error

	rpc *spdkrpc.Client
}

// known is a Caller that knows the target.
type known struct {
	spdkrpc.Caller
	release rpcschema.Release
}

// Call answers from what is known already, so that hosts do not wait for it: the
// client asks for the release, and again after each call that fails. Older releases
// fail at a call on a subsystem while they end another; it is made again.
func (k known) Call(ctx context.Context, method string, params, result any) error {
	if method != "spdk_get_version" {
		var err error
		for range tries {
			err = k.Caller.Call(ctx, method, params, result)
			if spdkrpc.KindOf(err) != spdkrpc.Failed || !strings.HasPrefix(method, "nvmf_subsystem_") || ctx.Err() != nil {
				break
			}
			time.Sleep(tryAgain)
		}
		return err
	}
	text, err := json.Marshal(map[string]string{"version": "SPDK " + k.release.String()})
	if err != nil {
		return err
	}
	return json.Unmarshal(text, result)
}

// A Place is where a target listens, and who may be trusted there.
type Place struct {
	Socket   string   `json:"socket"`
	PeerUIDs []uint32 `json:"peer_uids,omitempty"`
}

// A Connect connects to the target at a place.
type Connect func(ctx context.Context, at Place) (*Target, error)

func (c Connect) to(ctx context.Context, at Place) (*Target, error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	t, err := c(ctx, at)
	if err != nil {
		return nil, err
	}
	t.rpc = spdkrpc.NewClient(known{t.Caller, t.Release})
	return t, nil
}

// tries and tryAgain bound how often, and how soon, a call is made again.
const (
	tries    = 4
	tryAgain = 5 * time.Millisecond
)

// Timeouts.
const (
	connectWithin = 5 * time.Second
	readWithin    = 5 * time.Second // before anything is frozen
	lockWithin    = time.Second     // until calls that change the same objects have ended
	freezeWithin  = time.Second     // from the first path that becomes inaccessible until no I/O is under way
	thawWithin    = 5 * time.Second // one attempt
	longSnapshot  = time.Second     // from then on a snapshot that is not answered is logged
)
