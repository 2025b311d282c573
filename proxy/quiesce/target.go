package quiesce

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Target is one process of the target. Its connection closes when the process ends.
type Target struct {
	Caller  spdkrpc.Caller
	Process string // see Options.Process
	Release rpcschema.Release
	Close   func() error
	// Reuse keeps the connection for another operation. If it is nil, the connection is closed.
	Reuse func()

	rpc *spdkrpc.Client
}

// A retryingCaller is a Caller that caches the target's release and retries failed calls.
type retryingCaller struct {
	spdkrpc.Caller
	release rpcschema.Release
}

// Call returns the result of spdk_get_version without calling the target. Otherwise, spdkrpc.Client
// would ask for the release before its first call and after each failed call, and frozen hosts
// would have to wait for the response. Call retries failed calls for a subsystem, because older
// releases refuse a call while they are completing another.
func (k retryingCaller) Call(ctx context.Context, method string, params, result any) error {
	if method != "spdk_get_version" {
		var err error
		for range maxTries {
			err = k.Caller.Call(ctx, method, params, result)
			if spdkrpc.KindOf(err) != spdkrpc.Failed || !strings.HasPrefix(method, "nvmf_subsystem_") || ctx.Err() != nil {
				break
			}
			time.Sleep(retryDelay)
		}
		return err
	}
	text, err := json.Marshal(map[string]string{"version": "SPDK " + k.release.String()})
	if err != nil {
		return err
	}
	return json.Unmarshal(text, result)
}

// A Place is a target's socket, with the users who may listen there.
type Place struct {
	Socket   string   `json:"socket"`
	PeerUIDs []uint32 `json:"peer_uids,omitempty"`
}

// A Connect connects to the target at a Place.
type Connect func(ctx context.Context, at Place) (*Target, error)

func (c Connect) to(ctx context.Context, at Place) (*Target, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	t, err := c(ctx, at)
	if err != nil {
		return nil, err
	}
	t.rpc = spdkrpc.NewClient(retryingCaller{t.Caller, t.Release})
	return t, nil
}

// These constants limit how often and how long a call is retried.
const (
	maxTries   = 4
	retryDelay = 5 * time.Millisecond
)

// These are the timeouts of an operation's steps.
const (
	connectTimeout = 5 * time.Second
	readTimeout    = 5 * time.Second // for reads before anything is frozen
	// for waiting until calls that change the same objects have ended
	lockTimeout   = time.Second
	freezeTimeout = time.Second     // from the first call until no I/O is in flight
	thawTimeout   = 5 * time.Second // for one attempt to thaw
	slowOperation = time.Second     // when to log a snapshot or deletion without a response
)
