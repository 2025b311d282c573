package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// idleAfter is longer than the time after which an idle proxy returns memory to the operating
// system.
const idleAfter = 8 * time.Second

// rss waits until the proxy is idle, and returns its resident memory in KiB.
func (p *proxy) rss(ctx context.Context) (int, error) {
	select {
	case <-time.After(idleAfter):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if rest, ok := strings.CutPrefix(string(line), "VmRSS:"); ok {
			return strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
		}
	}
	return 0, errors.New("/proc/PID/status has no VmRSS")
}

// rssWithIdle returns the resident memory in KiB with the given number of idle connections, after
// one call on each.
func (p *proxy) rssWithIdle(ctx context.Context, connections int) (kib int, err error) {
	open := make([]net.Conn, 0, connections)
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: p.ca, ServerName: "127.0.0.1"}}
	for range connections {
		c, err := dialer.DialContext(ctx, "tcp", strings.TrimSuffix(strings.TrimPrefix(p.url, "https://"), "/"))
		if err != nil {
			return 0, fmt.Errorf("open idle connections: %w", err)
		}
		open = append(open, c)
		if err := p.callOnce(c); err != nil {
			return 0, fmt.Errorf("open idle connections: %w", err)
		}
	}
	return p.rss(ctx)
}

// callOnce makes a call on a connection, which it leaves open.
func (p *proxy) callOnce(c net.Conn) error {
	const body = `{"jsonrpc":"2.0","id":1,"method":"spdk_get_version"}`
	r, err := http.NewRequest(http.MethodPost, p.url, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.SetBasicAuth(tenantUser, password)
	if err := r.Write(c); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), r)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}
