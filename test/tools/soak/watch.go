package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// usage holds the resources that the proxy uses.
type usage struct {
	descriptors, goroutines, residentKiB int
}

func (u usage) String() string {
	return fmt.Sprintf("%d descriptors, %d goroutines, %.1f MiB", u.descriptors, u.goroutines, float64(u.residentKiB)/1024)
}

func (w *testbed) usage() (u usage, err error) {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.proxy.pid()))
	if err != nil {
		return u, err
	}
	u.descriptors = len(fds)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.proxy.pid()))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			u.residentKiB, _ = strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	resp, err := http.Get("http://" + w.metrics + "/metrics")
	if err != nil {
		return u, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			u.goroutines, _ = strconv.Atoi(strings.TrimSpace(rest))
			return u, nil
		}
	}
	return u, errors.New("the metrics have no go_goroutines")
}

// idleUsage waits until connections have ended, and returns the resources that the idle proxy uses.
func (w *testbed) idleUsage(ctx context.Context) (u usage, err error) {
	for _, t := range w.tenantsOf {
		for _, c := range t.clients {
			c.over.closeIdle()
		}
	}
	http.DefaultClient.CloseIdleConnections()
	select {
	case <-ctx.Done():
		return u, ctx.Err()
	case <-time.After(8 * time.Second): // longer than limits.idle, and than the service takes to return memory
	}
	return w.usage()
}

func (b *book) count(event string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events[event]++
}

// progress prints a line every 30 seconds, or more often in a short run.
func (w *testbed) progress(ctx context.Context, span time.Duration) {
	began := time.Now()
	period := min(30*time.Second, max(span/10, 2*time.Second))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(period):
		}
		u, err := w.usage()
		if err != nil {
			w.book.wrong("cannot read the usage of the proxy: %v", err)
			return
		}
		w.peak = usage{max(w.peak.descriptors, u.descriptors), max(w.peak.goroutines, u.goroutines), max(w.peak.residentKiB, u.residentKiB)}
		w.book.mu.Lock()
		calls := 0
		for _, t := range w.book.tallies {
			calls += t.calls
		}
		fmt.Printf("%5s of %s: %d calls, %d kills, %d reloads, %d violations; %s\n", time.Since(began).Round(time.Second), span, calls, w.kills.Load(), w.reloads.Load(), w.book.nWrong, u)
		w.book.mu.Unlock()
	}
}

// report prints the table and the checks, and fails if a check has failed.
func (w *testbed) report(before, after usage) error {
	b := w.book
	b.mu.Lock()
	defer b.mu.Unlock()
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "\nuser\tcalls\tsucceeded\tSPDK errors\ttarget down\ttoo many calls\tother\tp50 ms\tp99 ms\tmax ms\t")
	for _, name := range w.users() {
		t := b.tallies[name]
		if t == nil || t.ok == 0 {
			b.note("%s: no call succeeded", name)
			continue
		}
		ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t\n", name, t.calls, t.ok, t.spdk, t.away, t.busy, t.other, ms(quantile(t.latencies, .5)), ms(quantile(t.latencies, .99)), ms(t.slowest))
	}
	_ = out.Flush()
	fmt.Printf("\nhostile clients: %d answered, %d disconnected in a request, %d without TLS, %d slow\ntarget: killed %d times\nproxy: %d reloads, of which %d were invalid\n",
		b.events["attack answered"], b.events["hung up"], b.events["garbage"], b.events["slow"], w.kills.Load(), w.reloads.Load(), w.refusals.Load())
	fmt.Printf("streams: %d opened, at most %d at once\n", b.events["stream opened"], b.mostStreams)
	fmt.Printf("idle proxy: %s before, %s after; peak under load: %s\n\n", before, after, w.peak)
	for _, name := range w.users() {
		if t := b.tallies[name]; t != nil && t.calls != b.entries[name] {
			b.note("%s: %d calls, but %d entries in the log", name, t.calls, b.entries[name])
		}
	}

	failed := 0
	check := func(condition string, good bool) {
		verdict := "ok  "
		if !good {
			verdict = "FAIL"
			failed++
		}
		fmt.Println(verdict, condition)
	}
	check(fmt.Sprintf("no wrong responses, no responses to the wrong caller, no volumes lost or left over (%d violations)", b.nWrong), b.nWrong == 0)
	check("no panics and no errors in the log", b.events["panic"] == 0 && b.errors == 0)
	check("no descriptors left open", after.descriptors <= before.descriptors+8) // the number of connections to the target varies with the load
	check("no goroutines left over", after.goroutines > 0 && after.goroutines <= before.goroutines+20)
	check("valid configurations were applied, invalid ones were refused", int64(b.events["reloaded"]) >= (w.reloads.Load()-w.refusals.Load())/2 && int64(b.events[refusedReload]) >= w.refusals.Load()/2 && b.events["reloaded"] > 0)
	check("the target was killed and restarted", w.kills.Load() > 0)
	if w.over != overPOST {
		// On a busy machine, some streams of a killed target's proxy are always being opened again.
		check(fmt.Sprintf("at least %d streams were open at once", crowdStreams/2), b.mostStreams >= crowdStreams/2)
	}
	for _, wrong := range b.wrongs {
		fmt.Println("    ", wrong)
	}
	if failed > 0 {
		return fmt.Errorf("%d checks failed", failed)
	}
	return nil
}
