package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// measurePython measures SPDK's rpc_http_proxy.py on the same socket. It does not use TLS, which
// that script does not support with current Python versions. Calls without a response are counted
// as lost and are not included in the figures.
func measurePython(ctx context.Context, script, socket string, inFlight int, span time.Duration) (f figures, lost int, err error) {
	address, err := freeAddress()
	if err != nil {
		return figures{}, 0, err
	}
	host, port, _ := strings.Cut(address, ":")
	cmd := exec.CommandContext(ctx, "python3", script, host, port, user, password, "-s", socket)
	cmd.Env = append(os.Environ(), "PATH=/usr/bin:"+os.Getenv("PATH"))
	if err := cmd.Start(); err != nil {
		return figures{}, 0, fmt.Errorf("start rpc_http_proxy.py: %w", err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := awaitListening(ctx, address); err != nil {
		return figures{}, 0, fmt.Errorf("rpc_http_proxy.py does not listen: %w", err)
	}
	begin := time.Now().Add(warmUp)
	end := begin.Add(span)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // the script closes the connection after each call
	var workers sync.WaitGroup
	var mu sync.Mutex
	var latencies []time.Duration
	for range inFlight {
		workers.Go(func() {
			for ctx.Err() == nil {
				started := time.Now()
				err := askPython(ctx, client, "http://"+address+"/")
				mu.Lock()
				switch answered := time.Now(); {
				case ctx.Err() != nil:
				case err != nil:
					lost++
				case started.After(begin):
					latencies = append(latencies, answered.Sub(started))
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	f, err = figuresOf(latencies, len(latencies), span)
	return f, lost, err
}

func askPython(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"spdk_get_version"}`))
	if err != nil {
		return err
	}
	r.SetBasicAuth(user, password)
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"result"`) {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

func awaitListening(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
