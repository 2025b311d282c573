package proxy

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/session"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// An exchange is one HTTP request, or one message on the socket for programs of this host, and its answer. It holds what the calls of a batch share;
// most requests have one call.
type exchange struct {
	id      string // X-Request-Id
	client  trace  // what the client calls it
	arrived time.Time
	source  auditlog.Source
	// noSource means that source is a load balancer's, and why. Such a request is refused.
	noSource error
	sender   sender
	get      bool // it is a GET
	local    bool // it is a message on the socket for programs of this host

	entered  bool // inFlight counts it
	bodyRead bool
	batch    bool
	// concurrent means that the calls of the batch are made at once.
	concurrent bool
	calls      []*call

	resultBytes int // of the results of its calls so far
	reserved    int // bytes of the user's memory budget, until the request is answered
}

// A sender is the user who sent a request, see noteSender.
type sender struct {
	user            string // the name in the credentials, if there is such a user; authenticated or not
	unauthenticated bool
	auth            string // the kind of credential
	credential      string // which of the user's credentials, without any secret

	challenges []string // WWW-Authenticate of a refusal

	session *session.Session[signedIn] // nil: the request has its own credentials
}

// maxBatchResults bounds the memory that the results of one batch take.
const maxBatchResults = 64 << 20

func newExchange(r *http.Request, b balancers) *exchange {
	source, err := b.sourceOf(r)
	return &exchange{id: newID(), client: traceOf(r.Header), arrived: time.Now(), source: source, noSource: err}
}

// newID makes the id of an exchange in the log. It need not be unpredictable.
func newID() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64())
	return hex.EncodeToString(b[:])
}

// noteCalls notes the calls of a request. If the whole request is refused with err, that
// counts as one call.
func (x *exchange) noteCalls(elements []jsonrpc.Element, batch bool, err error) {
	if err != nil {
		elements, batch = []jsonrpc.Element{{Err: err}}, false
	}
	x.batch = batch
	for _, e := range elements {
		x.calls = append(x.calls, newCall(x, e))
	}
}
