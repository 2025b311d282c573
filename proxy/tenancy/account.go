package tenancy

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An amount is what a tenant takes up, or a call would take up.
type amount struct{ bytes, volumes, subsystems uint64 }

func (a amount) plus(b amount) amount {
	bytes, over := bits.Add64(a.bytes, b.bytes, 0)
	if over > 0 {
		bytes = math.MaxUint64
	}
	return amount{bytes, a.volumes + b.volumes, a.subsystems + b.subsystems}
}

// An account is what one tenant takes up. Calls that make something are under way
// together, each with what it takes reserved; those that take over the size of a
// bdev, or set it, are alone, as that must not change meanwhile.
type account struct {
	gate chan struct{} // holds one value, for whoever is being decided on, or is alone

	mu         sync.Mutex // guards what follows
	counted    amount
	at         time.Time // of counting
	exact      bool      // nothing was under way while it was counted
	decreased  bool      // something of theirs may have gone since
	during     amount    // what was made while it is being counted
	under      map[*claim]amount
	idle       chan struct{} // closed once none is under way; nil when nobody waits for it
	unanswered []unansweredCall
	subsystems map[string]bool // that it has made: one that is named by a volume outlives it
}

// An unansweredCall had no answer: it may have been executed, or still be, at any
// time until it is forgotten.
type unansweredCall struct {
	amount
	bdev  string // whose size it sets, or takes over
	until time.Time
}

func newAccount() *account {
	a := &account{gate: make(chan struct{}, 1), under: map[*claim]amount{}, subsystems: map[string]bool{}}
	a.gate <- struct{}{}
	return a
}

// forgetCount has the target counted anew before anything is decided by the count.
func (a *account) forgetCount() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = time.Time{}
}

// A claim is what one call takes.
type claim struct {
	account *account
	asked   amount
	makes   string // NQN of a subsystem
	sizes   []bdevSize
	gate    bool // it holds the gate
	settled bool
}

// A bdevSize is a bdev whose size a call sets, or takes over.
type bdevSize struct {
	bdev   string
	size   uint64 // that it has then, or had
	amount amount // that the call takes because of it
}

// settle notes how the call went. One that is executed at some time later may
// find its volume smaller than it was, and then takes more than it asked for.
func (c *claim) settle(err error) {
	a := c.account
	a.mu.Lock()
	defer a.mu.Unlock()
	c.settled = true
	unknown := errors.Is(err, spdkrpc.OutcomeUnknown)
	if c.makes != "" && (err == nil || unknown) {
		a.subsystems[c.makes] = true
	}
	switch {
	case err == nil:
		a.counted, a.during = a.counted.plus(c.asked), a.during.plus(c.asked)
	case unknown:
		until := now().Add(lostKeep)
		for _, s := range c.sizes {
			l := unansweredCall{s.amount, s.bdev, until}
			l.bytes = max(l.bytes, s.size)
			a.unanswered = append(a.unanswered, l)
		}
		if rest := c.besidesSizes(); rest != (amount{}) {
			a.unanswered = append(a.unanswered, unansweredCall{rest, "", until})
		}
	}
	delete(a.under, c)
	if len(a.under) == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// besidesSizes is what the call takes besides what its bdevs' sizes make it take.
func (c *claim) besidesSizes() amount {
	rest := c.asked
	for _, s := range c.sizes {
		rest.bytes -= min(rest.bytes, s.amount.bytes)
		rest.volumes -= min(rest.volumes, s.amount.volumes)
	}
	return rest
}

// leave lets the next one be decided on.
func (c *claim) leave() {
	if c.gate {
		c.gate = false
		c.account.gate <- struct{}{}
	}
}

// enter waits for the gate.
func (c *claim) enter(ctx context.Context, bound <-chan time.Time) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case <-c.account.gate:
		c.gate = true
		return nil
	case <-bound:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain waits until no other call is under way. The gate is held, so that none
// begins.
func (c *claim) drain(ctx context.Context, bound <-chan time.Time) error {
	a := c.account
	a.mu.Lock()
	if len(a.under) == 0 {
		a.mu.Unlock()
		return nil
	}
	if a.idle == nil {
		a.idle = make(chan struct{})
	}
	idle := a.idle
	a.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-bound:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

// noteDecrease notes that a call may have taken something away.
func (a *account) noteDecrease() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.decreased = true
}

// taken is what the tenant may have taken up, with all that is under way or may
// still be executed; whether it was counted lately; and whether counting it again
// would find no less. Lost calls that the claim may change the outcome of are taken
// into account so.
func (a *account) taken(c *claim) (sum amount, fresh, surely bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum = a.counted
	kept := a.unanswered[:0]
	for _, l := range a.unanswered {
		if !now().Before(l.until) {
			continue
		}
		for _, s := range c.sizes {
			if l.bdev == s.bdev {
				l.bytes = max(l.bytes, s.size) // if it comes after this one, it may take over this size
			}
		}
		kept, sum = append(kept, l), sum.plus(l.amount)
	}
	a.unanswered = kept
	for _, asked := range a.under {
		sum = sum.plus(asked)
	}
	surely = a.exact && !a.decreased && len(a.under) == 0 && now().Before(a.at.Add(recountAfter))
	return sum, now().Before(a.at.Add(countKeep)), surely
}

// hold reserves what a claim takes.
func (a *account) hold(c *claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.under[c] = c.asked
}

// recount takes over what is counted. What is made meanwhile may or may not be
// in it, so it is counted besides. The gate is held; exact: nothing was under way.
func (a *account) recount(count func() (amount, error)) (exact bool, err error) {
	a.mu.Lock()
	a.during, a.decreased = amount{}, false
	exact = len(a.under) == 0
	a.mu.Unlock()
	begun := now()
	counted, err := count()
	if err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted, a.at, a.exact = counted.plus(a.during), begun, exact
	return exact, nil
}

// largest is the size that a bdev may have by calls that were lost, or size.
func (a *account) largest(bdev string, size uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.unanswered {
		if l.bdev == bdev && now().Before(l.until) {
			size = max(size, l.bytes)
		}
	}
	return size
}

// made says whether a subsystem is one that the tenant has made.
func (a *account) made(nqn string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.subsystems[nqn]
}

// keep forgets the subsystems that are gone, unless a call may still make them.
func (a *account) keep(there map[string]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.unanswered)+len(a.under) > 0 {
		return
	}
	for nqn := range a.subsystems {
		if !there[nqn] {
			delete(a.subsystems, nqn)
		}
	}
}
