package tenancy

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/tenancy/owners"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An amount is a tenant's usage, or the additional usage that a call would cause.
type amount struct{ bytes, volumes, subsystems, hosts, listeners uint64 }

func (a amount) plus(b amount) amount {
	bytes, over := bits.Add64(a.bytes, b.bytes, 0)
	if over > 0 {
		bytes = math.MaxUint64
	}
	return amount{bytes, a.volumes + b.volumes, a.subsystems + b.subsystems, a.hosts + b.hosts, a.listeners + b.listeners}
}

// An account records how much of some quotas a tenant uses. Each tenant has one account for volumes
// and one for exports; calls for one account do not wait for calls for the other. Calls that create
// something run concurrently, and each reserves the amount that it needs. A call that inherits or
// sets the size of a bdev runs alone, because the size must not change during the call.
type account struct {
	gate chan struct{} // capacity 1; contains an element while a call is being admitted or runs alone

	mu         sync.Mutex // guards the fields below
	counted    amount
	at         time.Time // when counting began
	exact      bool      // no call was running when counting began
	decreased  bool      // objects of the tenant may have been deleted since counting began
	during     amount    // created by calls since counting began
	running    map[*claim]amount
	idle       chan struct{} // closed when no call is running; nil if no call waits for that
	unanswered []unansweredCall
	subsystems map[string]bool // subsystems that the tenant has created or changed; a subsystem named after a volume may outlive the volume

	owners *owners.File // keeps subsystems across restarts; may be nil
	tenant string       // name of the tenant in owners
}

// An unansweredCall is a call to which SPDK has not responded. SPDK may have executed it, or may
// still execute it.
type unansweredCall struct {
	amount
	bdev  string // bdev whose size the call sets or inherits
	until time.Time
}

func newAccount() *account {
	a := &account{gate: make(chan struct{}, 1), running: map[*claim]amount{}, subsystems: map[string]bool{}}
	a.gate <- struct{}{}
	return a
}

// forgetCount discards the count, so that the next decision counts the tenant's objects on the
// target again.
func (a *account) forgetCount() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = time.Time{}
}

// A claim is a call's reservation of part of the quota.
type claim struct {
	account   *account
	asked     amount
	subsystem string // NQN of the subsystem that the call creates or adds something to
	sizes     []bdevSize
	gate      bool // this claim holds the account's lock
	settled   bool
}

// A bdevSize is a bdev whose size a call sets or inherits.
type bdevSize struct {
	bdev   string
	size   uint64 // the size that the call sets or inherits
	amount amount // the part of the call's usage that is due to this size
}

// settle records the outcome of the call. If the outcome is unknown, SPDK may still execute the
// call, perhaps after another call has shrunk the volume. The call would then add more than it
// requested, so the volume's whole new size stays reserved.
func (c *claim) settle(err error) {
	a := c.account
	a.mu.Lock()
	defer a.mu.Unlock()
	c.settled = true
	unknown := errors.Is(err, spdkrpc.OutcomeUnknown)
	if c.subsystem != "" && (err == nil || unknown) {
		a.subsystems[c.subsystem] = true
	}
	switch {
	case err == nil:
		a.counted, a.during = a.counted.plus(c.asked), a.during.plus(c.asked)
	case unknown:
		until := now().Add(unansweredKeep)
		for _, s := range c.sizes {
			l := unansweredCall{s.amount, s.bdev, until}
			l.bytes = max(l.bytes, s.size)
			a.unanswered = append(a.unanswered, l)
		}
		if rest := c.besidesSizes(); rest != (amount{}) {
			a.unanswered = append(a.unanswered, unansweredCall{rest, "", until})
		}
	}
	delete(a.running, c)
	if len(a.running) == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// besidesSizes returns the call's usage in addition to the amounts in c.sizes.
func (c *claim) besidesSizes() amount {
	rest := c.asked
	for _, s := range c.sizes {
		rest.bytes -= min(rest.bytes, s.amount.bytes)
		rest.volumes -= min(rest.volumes, s.amount.volumes)
	}
	return rest
}

// leave releases the account's lock.
func (c *claim) leave() {
	if c.gate {
		c.gate = false
		c.account.gate <- struct{}{}
	}
}

// enter waits until it has acquired the account's lock.
func (c *claim) enter(ctx context.Context, timeout <-chan time.Time) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case <-c.account.gate:
		c.gate = true
		return nil
	case <-timeout:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain waits until no other call is running. The caller holds the account's lock, so no other call
// begins.
func (c *claim) drain(ctx context.Context, timeout <-chan time.Time) error {
	a := c.account
	a.mu.Lock()
	if len(a.running) == 0 {
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
	case <-timeout:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

// noteDecrease records that a call may have deleted or shrunk objects.
func (a *account) noteDecrease() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.decreased = true
}

// used returns an upper bound for the tenant's usage, including running calls and calls that may
// still be executed. fresh means that the usage was counted recently; certain means that a new
// count would not be lower. The bound takes into account that c's call may change the amount of an
// unanswered call.
func (a *account) used(c *claim) (sum amount, fresh, certain bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum = a.counted.plus(a.pendingLocked(c))
	certain = a.exact && !a.decreased && len(a.running) == 0 && now().Before(a.at.Add(recountAfter))
	return sum, now().Before(a.at.Add(countKeep)), certain
}

// pending returns an upper bound for the usage of running calls, and of calls that may still be
// executed.
func (a *account) pending() amount {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pendingLocked(&claim{})
}

func (a *account) pendingLocked(c *claim) (sum amount) {
	kept := a.unanswered[:0]
	for _, l := range a.unanswered {
		if !now().Before(l.until) {
			continue
		}
		for _, s := range c.sizes {
			if l.bdev == s.bdev {
				l.bytes = max(l.bytes, s.size) // an unanswered call may still inherit this size
			}
		}
		kept, sum = append(kept, l), sum.plus(l.amount)
	}
	a.unanswered = kept
	for _, asked := range a.running {
		sum = sum.plus(asked)
	}
	return sum
}

// add counts the claim's call as a running call.
func (a *account) add(c *claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running[c] = c.asked
}

// recount replaces the count with the result of count. The target's lists may lack objects created
// by calls during the count, so recount adds these objects. The caller must hold the account's
// lock. exact means that no call was running.
func (a *account) recount(count func() (amount, error)) (exact bool, err error) {
	a.mu.Lock()
	a.during, a.decreased = amount{}, false
	exact = len(a.running) == 0
	a.mu.Unlock()
	began := now()
	counted, err := count()
	if err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted, a.at, a.exact = counted.plus(a.during), began, exact
	return exact, nil
}

// largest returns the largest size to which unanswered calls may set a bdev, or size if that is
// larger.
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

// changed reports whether the tenant has created or changed a subsystem.
func (a *account) changed(nqn string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.subsystems[nqn]
}

// changedAlone reports whether the tenant, and no other tenant, has created or changed a subsystem.
// Such a subsystem still belongs to the tenant after its volume is gone, but the tenant can only
// see and delete it. The tenant cannot admit hosts to it, because a volume that is only temporarily
// missing may return as another tenant's volume.
func (s *Scope) changedAlone(nqn string) bool {
	for _, other := range s.tenancy.scopes {
		if other != s && other.exports.changed(nqn) {
			return false
		}
	}
	return s.exports.changed(nqn)
}

// forgetSubsystems removes subsystems that no longer exist from the account, unless a call may
// still create them.
func (a *account) forgetSubsystems(existing map[string]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.unanswered)+len(a.running) > 0 || a.during != (amount{}) {
		return
	}
	for nqn := range a.subsystems {
		if !existing[nqn] {
			delete(a.subsystems, nqn)
		}
	}
	a.owners.Retain(a.tenant, existing)
}

// remember adds the subsystems that f lists for the tenant. From then on, the account also records
// its changes in f.
func (a *account) remember(f *owners.File, tenant string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owners, a.tenant = f, tenant
	for _, nqn := range f.Of(tenant) {
		a.subsystems[nqn] = true
	}
}
