package proxy

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// An exchange is one HTTP request and its answer: what the calls in it share,
// mostly just one.
type exchange struct {
	id      string // X-Request-Id
	arrived time.Time
	source  netip.AddrPort
	sender  sender

	entered  bool // it counts among those under way
	bodyRead bool
	batch    bool
	calls    []*call

	resultBytes int // in the results of its calls so far
	reserved    int // bytes of the user's memory budget, until it is answered
}

// A sender is who sent a request, see noteSender.
type sender struct {
	user            string // the name that was given, if there is such a user; authenticated or not
	unauthenticated bool
	auth            string // the kind of credential
	credential      string // which one it was, without any secret

	challenges []string // the ways to authenticate that a refusal names
}

// maxBatchResults bounds the memory that the results of one batch take.
const maxBatchResults = 64 << 20

func newExchange(r *http.Request) *exchange {
	source, _ := netip.ParseAddrPort(r.RemoteAddr) // of a listener's own making
	return &exchange{id: newID(), arrived: time.Now(), source: source}
}

// newID names an exchange in the log; it guards nothing.
func newID() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64())
	return hex.EncodeToString(b[:])
}

// noteCalls notes the calls of a request, or the one that stands for what is wrong
// with it as a whole.
func (x *exchange) noteCalls(elements []jsonrpc.Element, batch bool, err error) {
	if err != nil {
		elements, batch = []jsonrpc.Element{{Err: err}}, false
	}
	x.batch = batch
	for _, e := range elements {
		x.calls = append(x.calls, newCall(x, e))
	}
}
