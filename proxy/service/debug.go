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

// The debug socket is in the same directory as the control socket, with the same permissions.
// Profiles may reveal secrets through the names in stacks, and through durations. A port on a
// loopback address would reveal profiles to every user of this host, and a port on the public
// address would reveal them to everyone.
const debugName = "debug"

// profiles maps the names of profiles to their paths and queries in net/http/pprof.
var profiles = map[string]string{
	"goroutines": "goroutine?debug=2",
	"heap":       "heap?gc=1",
	"allocs":     "allocs",
	"cpu":        "profile",
	"trace":      "trace",
}

// openDebug starts serving profiles of this process, if there is a runtime directory.
func openDebug() error {
	l, err := openSocket(debugName)
	if l == nil || err != nil {
		return err
	}
	paths := http.NewServeMux() // not http.DefaultServeMux, to which pprof adds itself
	paths.HandleFunc("GET /debug/pprof/", pprof.Index)
	paths.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	paths.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: paths, ReadHeaderTimeout: controlWait}
	go func() { _ = server.Serve(l) }() // serves until the process ends
	return nil
}

// Profiles returns the names that Profile accepts, sorted.
func Profiles() []string { return slices.Sorted(maps.Keys(profiles)) }

// Profile writes a profile of a running service to w. For the profiles cpu and trace, seconds is
// the recording time.
func Profile(ctx context.Context, instance Instance, name string, seconds int, w io.Writer) error {
	path, ok := profiles[name]
	if !ok {
		return fmt.Errorf("unknown profile %q: use one of %s", name, strings.Join(Profiles(), ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+controlWait)
	defer cancel()
	socket := socketPath(instance, debugName)
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	address, err := url.Parse("http://localhost/debug/pprof/" + path)
	if err != nil {
		return err
	}
	if name == "cpu" || name == "trace" {
		address.RawQuery = url.Values{"seconds": {strconv.Itoa(seconds)}}.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("profile: %w: run this as root", err)
	case err != nil:
		return fmt.Errorf("profile: %w: check that the service runs (systemctl status %s)", err, instance.unit())
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return fmt.Errorf("profile: the service responded with %s: %s", resp.Status, strings.TrimSpace(string(reason)))
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("profile: %w: the profile is incomplete", err)
	}
	return nil
}
