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

// A world is everything that runs.
type world struct {
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

	// era is even while the target is up and as its tenants know it, and odd
	// from before it is killed until it is back.
	era     atomic.Int64
	upSince atomic.Int64 // nanoseconds, of the last time it came back

	kills, reloads, refusals atomic.Int64
	peak                     usage
}

func newWorld(ctx context.Context, p plan) (_ *world, err error) {
	w := &world{plan: p, keep: p.dir != "", book: newBook()}
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

func (w *world) close() error {
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

// round lets everybody loose for a while. Tenants end what they have begun.
func (w *world) round(ctx context.Context, span time.Duration) error {
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

// longRound is round, and again, with fewer kills, while a user has got nothing done: a busy machine may need longer for a
// call than the time between two kills.
func (w *world) longRound(ctx context.Context, span time.Duration) error {
	const most = 5
	for range most {
		if err := w.round(ctx, span); err != nil || len(w.idleUsers()) == 0 {
			return err
		}
		w.kill *= 2
		fmt.Printf("%s got nothing done yet: another %s, killed every %s\n", strings.Join(w.idleUsers(), ", "), span, w.kill)
	}
	return nil // the report says who got nothing done
}

// users are those whose calls are counted.
func (w *world) users() []string {
	names := []string{"flooder"}
	for _, t := range w.tenantsOf {
		names = append(names, t.user)
	}
	return names
}

// idleUsers are those of whose calls none has succeeded.
func (w *world) idleUsers() []string {
	w.book.mu.Lock()
	defer w.book.mu.Unlock()
	return slices.DeleteFunc(w.users(), func(user string) bool { return w.book.tallies[user] != nil && w.book.tallies[user].ok > 0 })
}

func (w *world) every(ctx context.Context, period time.Duration, do func() error) error {
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

func (w *world) killTarget(ctx context.Context) error {
	w.era.Add(1)
	w.kills.Add(1)
	if err := w.target.kill(); err != nil {
		return err
	}
	if w.kills.Load()%3 == 0 { // sometimes it stays away for a while
		time.Sleep(w.kill / 10)
	}
	if err := w.startTarget(ctx); err != nil {
		return fmt.Errorf("start the target again: %w", err)
	}
	w.upSince.Store(time.Now().UnixNano())
	w.era.Add(1)
	return nil
}

// settled tells whether the target was up all the time since the era, and for
// long enough that the proxy must have noticed.
func (w *world) settled(era, began int64) bool {
	return era%2 == 0 && w.era.Load() == era && began-w.upSince.Load() > int64(3*time.Second)
}
