package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// A Group runs one operation at a time on each object. Objects are identified by names, such as
// target names, device numbers or paths.
type Group struct {
	// Busy is the error of an operation if another operation has locked one of its objects.
	Busy error
	// Wait makes an operation wait for an earlier operation on the same object until the context of
	// the waiting operation ends. Without Wait, the later operation fails immediately.
	Wait bool
	// Cause returns the reason why a context ended. If Cause is nil, context.Cause is used.
	Cause func(context.Context) error

	mu      sync.Mutex
	running map[string]*running // by object
	queries singleflight.Group
}

type running struct {
	step  *Step
	ended chan struct{}
}

// giveUpDelay is how long Run continues to wait for the operation after its context has ended,
// because the error of the operation is more precise than the error of Run.
const giveUpDelay = 100 * time.Millisecond

// Run locks the objects, calls fn, and returns when fn returns or ctx ends. fn should check its
// context before each step that it starts. If ctx ends first, fn continues, and the objects remain
// locked until fn returns.
func Run[T any](ctx context.Context, g *Group, objects []string, fn func(context.Context, *Step) (T, error)) (T, error) {
	var none T
	step := new(Step)
	unlock, err := g.lock(ctx, objects, step)
	if err != nil {
		return none, err
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		v, err := fn(ctx, step)
		unlock()
		done <- outcome{v, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		return o.value, o.err
	case <-time.After(giveUpDelay):
		return none, fmt.Errorf("%w while %v: the operation continues in the background, and %s stays locked until it ends; if it does not, check the node's kernel log and whether the target is running",
			g.cause(ctx), step, strings.Join(objects, " and "))
	}
}

// Share calls fn, unless a call with the same name is already running, and waits for the result
// until ctx ends. A query that hangs because of its device therefore blocks only one goroutine,
// however often the query is repeated. All calls with the same name must have the same type T.
func Share[T any](ctx context.Context, g *Group, name string, fn func() (T, error)) (T, error) {
	select {
	case r := <-g.queries.DoChan(name, func() (any, error) { return fn() }):
		return r.Val.(T), r.Err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%s: no response: %w: check whether the target is running", name, g.cause(ctx))
	}
}

// Running lists the locked objects, sorted.
func (g *Group) Running() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var objects []string
	for o := range g.running {
		objects = append(objects, o)
	}
	slices.Sort(objects)
	return objects
}

func (g *Group) lock(ctx context.Context, objects []string, step *Step) (unlock func(), err error) {
	own := &running{step: step, ended: make(chan struct{})}
	for {
		other, object := g.claim(objects, own)
		if other == nil {
			return func() { g.release(objects, own) }, nil
		}
		if !g.Wait {
			return nil, fmt.Errorf("%w: an earlier operation on %s has not ended (%v): try again later", g.Busy, object, other.step)
		}
		select {
		case <-other.ended:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: an earlier operation on %s has not ended (%v): try again later (%w)", g.Busy, object, other.step, g.cause(ctx))
		}
	}
}

// claim locks either all objects or none. If it locks none, it returns an operation that has locked
// one of the objects, and that object.
func (g *Group) claim(objects []string, own *running) (other *running, object string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range objects {
		if other := g.running[o]; other != nil {
			return other, o
		}
	}
	if g.running == nil {
		g.running = make(map[string]*running)
	}
	for _, o := range objects {
		g.running[o] = own
	}
	return nil, ""
}

func (g *Group) release(objects []string, own *running) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range objects {
		delete(g.running, o)
	}
	close(own.ended)
}

func (g *Group) cause(ctx context.Context) error {
	if g.Cause != nil {
		return g.Cause(ctx)
	}
	return context.Cause(ctx)
}
