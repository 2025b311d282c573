package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The debug socket lies beside the control socket, for whom that is, too. What it
// tells may hold secrets: names in stacks, and how long what took. A port on
// loopback would tell every user of this host, and one on the public address
// everybody, so there is none.
const debugName = "debug"

// profiles are what there is, as net/http/pprof calls it.
var profiles = map[string]string{
	"goroutines": "goroutine?debug=2",
	"heap":       "heap?gc=1",
	"allocs":     "allocs",
	"cpu":        "profile",
	"trace":      "trace",
}

// openDebug serves profiles of this process, if there is a runtime folder.
func openDebug() error {
	l, err := openSocket(debugName)
	if l == nil || err != nil {
		return err
	}
	paths := http.NewServeMux() // net/http's own, which pprof adds itself to, nobody serves
	paths.HandleFunc("GET /debug/pprof/", pprof.Index)
	paths.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	paths.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: paths, ReadHeaderTimeout: controlWait}
	go func() { _ = server.Serve(l) }() // it never closes; the process ends
	return nil
}

// Profiles are the names that Profile knows.
func Profiles() []string { return slices.Sorted(maps.Keys(profiles)) }

// Profile writes a profile of the running service to w. Of those that watch for
// a while, seconds say how long.
func Profile(ctx context.Context, name string, seconds int, w io.Writer) error {
	path, ok := profiles[name]
	if !ok {
		return fmt.Errorf("there is no profile %q: there are %s", name, strings.Join(Profiles(), ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+controlWait)
	defer cancel()
	socket := socketPath(debugName)
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	asked, err := url.Parse("http://localhost/debug/pprof/" + path)
	if err != nil {
		return err
	}
	if name == "cpu" || name == "trace" {
		asked.RawQuery = url.Values{"seconds": {strconv.Itoa(seconds)}}.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, asked.String(), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("profile: %w: only root may", err)
	case err != nil:
		return fmt.Errorf("profile: %w: is the service running?", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return fmt.Errorf("profile: the service answers %s: %s", resp.Status, strings.TrimSpace(string(why)))
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("profile: %w: it is not complete", err)
	}
	return nil
}
