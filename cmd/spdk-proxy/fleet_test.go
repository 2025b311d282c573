package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/fleet"
	"github.com/spdkgate/spdkgate/proxy/terminal"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// silent returns the URL of a server that accepts connections but never responds.
func silent(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return "https://" + l.Addr().String()
}

// The command fleet lists servers that are up, down, unresponsive, or not accessible to the user.
// Servers that need attention come first.
func TestFleetListsServersByAttention(t *testing.T) {
	sim, err := spdktest.Start(spdktest.Options{ExamineListed: true}) // otherwise, status warns that the target examines disks that hosts can write
	require.NoError(t, err)
	defer func() { _ = sim.Close() }()
	stored(t, sim)
	down := target(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("password", "correct horse\n")
	write("wrong", "wrong\n")
	up, dead := through(t, sim), through(t, down)
	down.Crash()
	healthy := write("healthy.yaml", fmt.Sprintf("defaults: {user: admin, password_file: password}\nservers: [{name: up, url: %q, ca_file: %s}]", up[1], up[5]))
	o := run(t, "", "fleet", healthy)
	require.Zero(t, o.code, o.stderr)
	assert.Regexp(t, `(?m)^SERVER +STATE +SPDK +PROXY +FREE +PROVISIONED +CONFIG +CERTIFICATE$`, o.stdout)
	assert.Regexp(t, `(?m)^up +up +v26\.05 +\S+ +\d+(\.\d)? MiB of \d+(\.\d)? MiB +\d+ % +never saved +\d{4}-\d\d-\d\d$`, o.stdout)
	assert.Contains(t, o.stdout, "\n1 storage server, 0 need attention\n")

	write("blank", "\n")
	all := write("all.yaml", fmt.Sprintf(`
defaults: {user: admin, password_file: password, ca_file: %s}
servers:
  - {name: up, url: %q}
  - {name: dead, url: %q, ca_file: %s}
  - {name: strange, url: %q, ca_file: %s}
  - {name: gone, url: "https://127.0.0.1:1"}
  - {name: mistyped, url: "https://127.0.0.1:2", token_file: none}
  - {name: locked, url: "https://127.0.0.1:3", user: admin, password_file: none}
  - {name: blank, url: "https://127.0.0.1:4", token_file: blank}
`, up[5], up[1], dead[1], dead[5], dead[1]+"/", up[5]))
	o = run(t, "", "fleet", all, "--timeout", "1m", "-o", "json")
	assert.Equal(t, exitAttention, o.code)
	assert.Equal(t, "spdk-proxy: 6 of 7 storage servers need attention\n", o.stderr)
	var f terminal.Fleet
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &f))
	states := map[string]string{}
	for _, s := range f.Servers {
		states[s.Name] = s.State
		assert.Equal(t, s.Name != "up", s.Attention, s.Name)
	}
	assert.Equal(t, map[string]string{
		"up": "up", "dead": "target-unreachable", "strange": "untrusted", "gone": "unreachable", "mistyped": "no-credentials", "locked": "no-credentials", "blank": "no-credentials",
	}, states)
	for _, s := range f.Servers {
		if s.State == stateNoCredentials {
			assert.Regexp(t, "none: no such file or directory|the token is empty or malformed", s.Error)
			assert.NotContains(t, s.Error, "unreachable", "the server was not called")
		}
	}
	assert.Equal(t, "up", f.Servers[len(f.Servers)-1].Name)
	assert.Equal(t, "dead", f.Servers[len(f.Servers)-2].Name)
	assert.Equal(t, 1, f.Servers[len(f.Servers)-1].Status.Volumes)
	var fromYAML terminal.Fleet
	require.NoError(t, yaml.Unmarshal([]byte(run(t, "", "fleet", healthy, "-o", "yaml").stdout), &fromYAML))
	assert.Equal(t, "up", fromYAML.Servers[0].Name)

	refused := write("refused.yaml", fmt.Sprintf("servers: [{name: up, url: %q, ca_file: %s, user: admin, password_file: wrong}]", up[1], up[5]))
	o = run(t, "", "fleet", refused)
	assert.Equal(t, exitAttention, o.code)
	assert.Regexp(t, `(?m)^up +refused +- `, o.stdout)

	quiet := write("quiet.yaml", fmt.Sprintf("servers: [{name: quiet, url: %q, user: admin, password_file: password}]", silent(t)))
	o = run(t, "", "fleet", quiet, "--timeout", "100ms")
	assert.Equal(t, exitAttention, o.code)
	assert.Regexp(t, `(?m)^quiet +no response +- `, o.stdout)
	assert.Contains(t, o.stdout, "\n  ! no complete response in time: 100ms have passed\n")

	assert.Equal(t, exitUsage, run(t, "", "fleet").code)
	assert.Equal(t, exitUsage, run(t, "", "fleet", "/none").code)
	assert.Equal(t, exitUsage, run(t, "", "fleet", healthy, "-o", "xml").code)
	assert.Equal(t, exitUsage, run(t, "", "fleet", healthy, "--parallel", "0").code)
	assert.Equal(t, exitUsage, run(t, "", "fleet", healthy, "--watch", "--interval", "1ms").code)
	assert.Contains(t, run(t, "", "__complete", "fleet", healthy, "-o", "").stdout, "yaml")
}

// With the default --parallel, a hundred servers are read concurrently. No server closes its
// connection until all of them are connected.
func TestFleetReadsManyServersConcurrently(t *testing.T) {
	const servers = 100
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	go func() {
		var open []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if open = append(open, c); len(open) == servers {
				for _, c := range open {
					_ = c.Close()
				}
			}
		}
	}()
	text := "servers:\n"
	for i := range servers {
		text += fmt.Sprintf("  - {name: s%d, url: 'https://%s/%d', user: admin, password_file: password}\n", i, l.Addr(), i)
	}
	list := writeFleet(t, text)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(list), "password"), []byte("secret\n"), 0o600))
	o := run(t, "", "fleet", list, "--timeout", "30s")
	assert.Equal(t, exitAttention, o.code)
	assert.NotContains(t, o.stdout, "no response")
}

// Credentials from the environment are not sent to servers listed in a file.
func TestFleetIgnoresTheEnvironment(t *testing.T) {
	list, err := fleet.Load(writeFleet(t, "servers: [{name: a, url: 'https://127.0.0.1:1', cert_file: none}]"))
	require.NoError(t, err)
	t.Setenv(urlVariable, "https://127.0.0.1:2")
	t.Setenv(userVariable, "somebody")
	t.Setenv("SPDK_PROXY_PASSWORD", "secret")
	t.Setenv(caVariable, "/none")
	servers := connectFleet(list, time.Minute)
	defer servers.close()
	require.NoError(t, servers[0].failed)
	f := servers.read(t.Context(), fleet.Bounds{AtOnce: 1, Each: time.Minute})
	assert.Contains(t, f.Servers[0].Error, "127.0.0.1:1")
}

func writeFleet(t testing.TB, text string) string {
	path := filepath.Join(t.TempDir(), "servers.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// BenchmarkFleet reads 200 storage servers, each a proxy with its own simulated target and one
// volume. The targets and proxies run in this process.
func BenchmarkFleet(b *testing.B) {
	const servers = 200
	token, dir := authn.NewToken(), b.TempDir()
	require.NoError(b, os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600))
	authority := authntest.NewAuthority(b, "servers")
	pair := authority.Client(func(c *x509.Certificate) {
		c.IPAddresses, c.ExtKeyUsage = []net.IP{net.IPv4(127, 0, 0, 1)}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	require.NoError(b, os.WriteFile(filepath.Join(dir, "ca.pem"), authority.PEM(), 0o600))
	list := make([]fleet.Server, servers)
	for i := range list {
		sim, err := spdktest.Start(spdktest.Options{})
		require.NoError(b, err)
		b.Cleanup(func() { _ = sim.Close() })
		stored(b, sim)
		c := config.Default()
		c.TLS.InsecurePlaintext = true // httptest provides TLS
		c.Target.Socket = sim.Socket()
		c.Users = []config.User{{Name: "reader", TokenHashes: []string{authn.HashToken(token, time.Time{}).String()}, Roles: []string{"read-only"}}}
		served, err := proxy.NewServer(&c, proxy.Options{Version: "bench"})
		require.NoError(b, err)
		https := httptest.NewUnstartedServer(served.Handler())
		https.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		https.StartTLS()
		b.Cleanup(https.Close)
		list[i] = fleet.Server{Name: fmt.Sprintf("storage%03d", i), URL: https.URL, TokenFile: filepath.Join(dir, "token"), CAFile: filepath.Join(dir, "ca.pem")}
	}
	before := cpuTime(b)
	for b.Loop() {
		all := connectFleet(list, time.Minute)
		f := all.read(b.Context(), fleet.Bounds{AtOnce: 256, Each: time.Minute})
		all.close()
		require.Len(b, f.Servers, servers)
		for _, s := range f.Servers {
			require.Equal(b, "up", s.State, s.Error)
			require.Equal(b, 1, s.Status.Volumes)
			require.Equal(b, "bench", s.Status.Proxy)
		}
		require.NotEmpty(b, terminal.Page{Width: 120}.Fleet(f))
	}
	b.ReportMetric((cpuTime(b)-before).Seconds()/float64(b.N), "cpu-s/op")
}

// cpuTime returns the CPU time used by this process.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
