package auditlog

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A Decision is the proxy's decision about a call.
type Decision string

// These are the possible decisions.
const (
	Undecided       Decision = "none" // the call failed before a decision was made
	Unauthenticated Decision = "unauthenticated"
	Allowed         Decision = "allow"
	// allowed only because of learning mode; the policy would have refused the call
	Learned Decision = "learn"
	Denied  Decision = "deny"
)

// An Entry is the log's record of one call: its user, source, method, decision and outcome.
type Entry struct {
	RequestID string
	// ClientRequestID and TraceID are the ids that the client sent: X-Request-Id and the trace id
	// in traceparent. They are empty if the client did not send them.
	ClientRequestID, TraceID string

	User       string // if the call is unauthenticated, the name that the client gave, or ""
	Auth       string // kind of credential
	Credential string // identifies the credential without any secret; may be ""
	Source     Source

	Method string // as the client wrote it, if the method is not in the schema
	// without secrets; if nil, the entry contains neither parameters nor resources
	Params       map[string]any
	Translations []rpcschema.Translation

	Tenant string   // "" if the user belongs to no tenant
	Hidden int      // number of names in the call that the tenant cannot see
	Raised []string // parameters for which the proxy chose a safer value than the client

	Batch string // position in a batch, such as 2/3; "" if the call is not part of a batch

	Decision Decision
	Rule     string // the rule that led to the decision

	Status int // status of the response
	Code   int // code of the error in the response
	Err    error
	// NotExecuted means that Err comes from the proxy: SPDK was not called, or did not respond.
	NotExecuted bool

	Took time.Duration
}

// These are the keys of a log line, which [ReadLearned] also uses.
const (
	keyMessage  = slog.MessageKey
	keyUser     = "user"
	keyMethod   = "method"
	keyParams   = "params"
	keyDecision = "decision"
	keyStatus   = "status"
)

// message is the message of all log lines.
const message = "call"

// These constants limit the length of logged text that clients control, in bytes unless noted.
const (
	maxParams = 16 << 10 // encoded parameters of one call; longer parameters are omitted
	maxName   = 128      // name of a method, whether or not it exists
	maxError  = 2 << 10  // error that quotes unknown names

	maxResources = 16  // number of resources named by one call
	maxResource  = 256 // name of a resource; the longest in SPDK are NQNs, with 223 bytes
)

func (e *Entry) level() slog.Level {
	if e.NotExecuted || e.Decision == Learned {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

func (e *Entry) attrs(schema *rpcschema.Document) []slog.Attr {
	list := make([]slog.Attr, 0, 14) // sufficient for most entries
	list = append(list,
		slog.String("request_id", e.RequestID),
		slog.String(keyUser, e.User),
		slog.String("auth", e.Auth),
		slog.String("source", e.Source.String()),
		slog.String(keyMethod, ClipName(e.Method)),
	)
	if e.Source.Balancer.IsValid() {
		list = append(list, slog.String("load_balancer", e.Source.Balancer.String()))
	}
	if e.ClientRequestID != "" {
		list = append(list, slog.String("client_request_id", e.ClientRequestID))
	}
	if e.TraceID != "" {
		list = append(list, slog.String("trace_id", e.TraceID))
	}
	if e.Credential != "" {
		list = append(list, slog.String("credential", ClipName(e.Credential)))
	}
	if e.Params != nil {
		list = append(list, slog.Any("resources", resources(schema, e.Method, e.Params)), slog.Any(keyParams, loggable(e.Params)))
	}
	if len(e.Translations) > 0 {
		list = append(list, slog.Any("translated", inWords(e.Translations)))
	}
	if e.Tenant != "" {
		list = append(list, slog.String("tenant", e.Tenant), slog.Int("hidden", e.Hidden))
		if len(e.Raised) > 0 {
			list = append(list, slog.Any("raised", e.Raised))
		}
	}
	if e.Batch != "" {
		list = append(list, slog.String("batch", e.Batch))
	}
	list = append(list,
		slog.String(keyDecision, string(e.Decision)),
		slog.String("rule", e.Rule),
		slog.Int(keyStatus, e.Status),
	)
	if e.Err != nil {
		list = append(list, slog.Int("code", e.Code), slog.String("error", clip(e.Err.Error(), maxError)))
	}
	return append(list, slog.Float64("latency_ms", float64(e.Took.Microseconds())/1000))
}

// resources returns the objects that the parameters name, such as bdev:lvs0/vol1.
func resources(schema *rpcschema.Document, method string, params map[string]any) []string {
	names, more := schema.Names(method, params, maxResources)
	list := make([]string, 0, len(names)+1)
	for _, n := range names {
		list = append(list, n.Kind+":"+clip(n.Value, maxResource))
	}
	if more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return list
}

func inWords(translations []rpcschema.Translation) (list []string) {
	for _, t := range translations {
		list = append(list, t.From+" to "+t.To)
	}
	return list
}

// ClipName shortens a name chosen by a client to the maximum length that is logged.
func ClipName(name string) string { return clip(name, maxName) }

func clip(s string, most int) string { return s[:min(len(s), most)] }

// loggable returns the parameters as they are logged. Parameters that are too long are omitted.
// Only the parameters themselves count; otherwise, clients could hide them by padding the rest of
// the request.
func loggable(params map[string]any) any {
	text, err := jsonrpc.Marshal(params)
	switch {
	case err != nil:
		return "(cannot be encoded)"
	case len(text) > maxParams:
		return fmt.Sprintf("(%d bytes, too long to be logged)", len(text))
	}
	return loggedParams(text)
}

// loggedParams makes every handler write the parameters as JSON.
type loggedParams json.RawMessage

func (p loggedParams) MarshalJSON() ([]byte, error) { return p, nil }

func (p loggedParams) MarshalText() ([]byte, error) { return p, nil }
