package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A testbed holds all processes and clients of a run.
type testbed struct {
	plan
	keep       bool
	targetName string
	socket     string
	target     *program
	proxy      *program
	address    string
	metrics    string
	ca         *x509.CertPool
	configs    configs
	book       *book
	tenantsOf  []*tenant

	// era is odd from just before the target is killed until it is running again with the tenants'
	// lvstores, and even otherwise.
	era     atomic.Int64
	upSince atomic.Int64 // when the target last became available, in nanoseconds since 1970

	kills, reloads, refusals atomic.Int64
	streams                  atomic.Int64 // number of open streams, except hostile users'
	peak                     usage
}

func newTestbed(ctx context.Context, p plan) (_ *testbed, err error) {
	w := &testbed{plan: p, keep: p.dir != "", book: newBook()}
	if w.dir == "" {
		if w.dir, err = os.MkdirTemp("", "spdk-proxy-soak-"); err != nil {
			return nil, err
		}
	} else if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	w.socket = filepath.Join(w.dir, "spdk.sock")
	for i := range p.tenants {
		w.tenantsOf = append(w.tenantsOf, newTenant(w, i))
	}
	if err := w.startTarget(ctx); err != nil {
		return nil, err
	}
	if err := w.startProxy(ctx); err != nil {
		return nil, err
	}
	for _, t := range w.tenantsOf {
		t.connect()
	}
	return w, nil
}

func (w *testbed) close() error {
	var wrong error
	for _, p := range []*program{w.proxy, w.target} {
		if p != nil {
			wrong = errors.Join(wrong, p.end())
		}
	}
	if !w.keep {
		wrong = errors.Join(wrong, os.RemoveAll(w.dir))
	}
	return wrong
}

// round runs all clients and faults for the duration span. Tenants complete the work that they have
// started.
func (w *testbed) round(ctx context.Context, span time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	parent := context.WithoutCancel(ctx)
	failed := make(chan error, 16)
	var others, chaos sync.WaitGroup
	for _, t := range w.tenantsOf {
		for i := range w.workers {
			others.Go(func() { t.work(ctx, i) })
		}
	}
	others.Go(func() { w.flood(ctx) })
	others.Go(func() { w.crowd(ctx) })
	others.Go(func() { w.attack(ctx) })
	others.Go(func() { w.crawl(ctx) })
	chaos.Go(func() { failed <- w.every(ctx, w.kill, func() error { return w.killTarget(parent) }) })
	chaos.Go(func() { failed <- w.every(ctx, w.reload, w.reloadProxy) })
	others.Go(func() { w.progress(ctx, span) })
	others.Wait()
	chaos.Wait()
	close(failed)
	var wrong error
	for err := range failed {
		wrong = errors.Join(wrong, err)
	}
	return wrong
}

// longRound runs round. As long as a user has no successful calls, it repeats the round with fewer
// kills, because on a busy machine, a call may take longer than the time between two kills.
func (w *testbed) longRound(ctx context.Context, span time.Duration) error {
	const most = 5
	for range most {
		if err := w.round(ctx, span); err != nil || len(w.idleUsers()) == 0 {
			return err
		}
		w.kill *= 2
		fmt.Printf("no call of %s has succeeded: repeating for %s, with a kill every %s\n", strings.Join(w.idleUsers(), ", "), span, w.kill)
	}
	return nil // the report names these users
}

// users returns the users whose calls are counted.
func (w *testbed) users() []string {
	names := []string{flooder}
	for _, t := range w.tenantsOf {
		names = append(names, t.user)
	}
	if w.over != overPOST {
		for i := range crowdUsers {
			names = append(names, crowdUser(i))
		}
	}
	return names
}

// idleUsers returns the users without any successful call.
func (w *testbed) idleUsers() []string {
	w.book.mu.Lock()
	defer w.book.mu.Unlock()
	return slices.DeleteFunc(w.users(), func(user string) bool { return w.book.tallies[user] != nil && w.book.tallies[user].ok > 0 })
}

func (w *testbed) every(ctx context.Context, period time.Duration, do func() error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(period):
			if err := do(); err != nil {
				return err
			}
		}
	}
}

func (w *testbed) killTarget(ctx context.Context) error {
	w.era.Add(1)
	w.kills.Add(1)
	if err := w.target.kill(); err != nil {
		return err
	}
	if w.kills.Load()%3 == 0 { // every third time, it stays down for a while
		time.Sleep(w.kill / 10)
	}
	if err := w.startTarget(ctx); err != nil {
		return fmt.Errorf("start the target again: %w", err)
	}
	w.upSince.Store(time.Now().UnixNano())
	w.era.Add(1)
	return nil
}

// targetWasUp reports whether the target has been up since a call began in this era, and was up
// long enough before the call for the proxy to have connected.
func (w *testbed) targetWasUp(era, began int64) bool {
	return era%2 == 0 && w.era.Load() == era && began-w.upSince.Load() > int64(3*time.Second)
}
