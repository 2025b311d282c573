package proxy

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// An exchange is one HTTP request and its answer: what the calls in it share,
// mostly just one.
type exchange struct {
	id       string // X-Request-Id
	arrived  time.Time
	source   netip.AddrPort
	user     string
	decision auditlog.Decision // on whoever sent it

	// See evidence.go.
	auth, credential string
	challenges       []string

	entered   bool // it counts among those under way
	bodyRead  bool
	bodyBytes int
	batch     bool
	calls     []*call
	answered  int // bytes of results so far
	held      int // bytes that count as the user's until it is answered
}

// maxBatchResults bounds the memory that the results of one batch take.
const maxBatchResults = 64 << 20

func newExchange(r *http.Request) *exchange {
	source, _ := netip.ParseAddrPort(r.RemoteAddr) // of a listener's own making
	return &exchange{id: newID(), arrived: time.Now(), source: source, decision: auditlog.Undecided}
}

// newID names an exchange in the log; it guards nothing.
func newID() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64())
	return hex.EncodeToString(b[:])
}

// decoded notes the calls of a request, or the one that stands for what is
// wrong with it as a whole.
func (x *exchange) decoded(elements []jsonrpc.Element, batch bool, err error) {
	if err != nil {
		elements, batch = []jsonrpc.Element{{Err: err}}, false
	}
	x.batch = batch
	for _, e := range elements {
		x.calls = append(x.calls, newCall(x, e))
	}
}

// goesOn tells whether a further call of a batch may be made: each was promised
// no more than a request of its own, so that a proxy that stops, or a client
// that left, ends the batch before it.
func (s *Server) goesOn(ctx context.Context, x *exchange, c *call) error {
	switch {
	case c == x.calls[0]:
		return nil
	case ctx.Err() != nil:
		return errGone
	case s.calls.isDraining():
		return errDraining
	case x.answered > maxBatchResults:
		return errBatchResults
	case s.held.full(x.user):
		return errHeld
	}
	return nil
}
