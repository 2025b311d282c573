package service

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
)

func TestInstanceNamesAreParsed(t *testing.T) {
	for _, name := range []string{"../x", "a/b", "a b", "@", "-a", ".a", "a%i"} {
		_, err := ParseInstance(name)
		require.ErrorContains(t, err, "NAME in spdk-proxy@NAME.service", name)
	}
	for file, want := range map[string]Instance{"/etc/spdk-proxy/spdk-proxy.yaml": "", "/etc/spdk-proxy/a.yaml": "a", "/etc/spdk-proxy//b-1.yaml": "b-1"} {
		i, ok := InstanceOf(file)
		require.True(t, ok, file)
		assert.Equal(t, want, i)
		assert.Equal(t, filepath.Clean(file), i.Config())
	}
	for _, file := range []string{"/etc/spdk-proxy/a.yml", "/tmp/a.yaml", "a.yaml", "/etc/spdk-proxy/x/a.yaml", "/etc/spdk-proxy/-a.yaml"} {
		_, ok := InstanceOf(file)
		assert.False(t, ok, file)
	}
	for socket, want := range map[string]Instance{"/run/spdk-proxy-keys.sock": "", "/run/spdk-proxy-keys@a.sock": "a", "/srv/spdk-proxy-keys@a.sock": "a"} {
		i, ok := InstanceOfKeys(socket)
		require.True(t, ok, socket)
		assert.Equal(t, want, i)
	}
	for _, socket := range []string{"", "@", "/run/other.sock", "/run/spdk-proxy-keys", "/run/spdk-proxy-keys-a.sock", "/run/spdk-proxy-keys@...sock"} {
		_, ok := InstanceOfKeys(socket)
		assert.False(t, ok, socket)
	}
}

// A command connects to the service that it names. If it names none, it connects to the service
// whose unit runs it.
func TestCommandConnectsToItsInstance(t *testing.T) {
	assert.Equal(t, "/var/lib/spdk-proxy", Instance("").StateDirectory())
	assert.Equal(t, "/var/lib/spdk-proxy@a", Instance("a").StateDirectory())
	t.Setenv("RUNTIME_DIRECTORY", "/run/spdk-proxy@a")
	assert.Equal(t, "/run/spdk-proxy@a/control", socketPath("", controlName))
	assert.Equal(t, "/run/spdk-proxy@b/control", socketPath("b", controlName))
	assert.EqualValues(t, "a", ownInstance())
	t.Setenv("RUNTIME_DIRECTORY", "/run/spdk-proxy")
	assert.Empty(t, ownInstance())
	require.ErrorContains(t, Reload("b"), "systemctl status spdk-proxy@b")
}

// A copied configuration that still names another instance's files is rejected, because two proxies
// would delete each other's files.
func TestConfigurationOfAnotherInstanceIsRejected(t *testing.T) {
	of := func(state, keys string) *config.Config {
		c := config.Default()
		c.Target.Save.Dir, c.Target.Freeze.Dir, c.TLS.SelfSignedDir, c.Target.Keys.Socket = state+"/target", state+"/frozen", state, keys
		return &c
	}
	first, second := of("/var/lib/spdk-proxy", "/run/spdk-proxy-keys.sock"), of("/var/lib/spdk-proxy@a", "/run/spdk-proxy-keys@a.sock")
	require.NoError(t, CheckInstance(first, ""))
	require.NoError(t, CheckInstance(second, "a"))
	require.NoError(t, CheckInstance(of("/srv/state", "/srv/keys.sock"), "a"))
	require.NoError(t, CheckInstance(of("/var/lib/spdk-proxyx", ""), "a"))
	_, owned := OwnerOf("/var/lib/spdk-proxy-copies")
	require.False(t, owned)
	logs := config.Default()
	logs.Log.Calls.Path = "/var/log/spdk-proxy/calls.log"
	require.NoError(t, CheckInstance(&logs, ""))
	require.ErrorContains(t, CheckInstance(&logs, "a"), "log.calls.path: /var/log/spdk-proxy/calls.log belongs to spdk-proxy.service")
	for _, err := range []error{CheckInstance(first, "a"), CheckInstance(second, ""), CheckInstance(second, "b")} {
		for _, says := range []string{"target.save.dir: /var/lib/spdk-proxy", "target.freeze.dir: ", "tls.self_signed_dir: ", "target.keys.socket: /run/spdk-proxy-keys"} {
			require.ErrorContains(t, err, says)
		}
	}
	require.ErrorContains(t, CheckInstance(first, "a"), "belongs to spdk-proxy.service: use a directory with the name spdk-proxy@a")
	require.ErrorContains(t, CheckInstance(first, "a"), "use /run/spdk-proxy-keys@a.sock")
	require.ErrorContains(t, CheckInstance(second, ""), "use /run/spdk-proxy-keys.sock")

	t.Setenv("RUNTIME_DIRECTORY", "/run/spdk-proxy@a")
	require.NoError(t, checkOwnInstance(second))
	require.Error(t, checkOwnInstance(first), "a service with this configuration neither starts nor reloads")
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	require.NoError(t, checkOwnInstance(second), "systemd did not start this process")
}

// An instance uses the template's socket unit, unless it has its own. In either case, drop-ins
// under both names apply.
func TestInstanceUsesItsOwnOrTheTemplateSocketUnit(t *testing.T) {
	root := t.TempDir()
	write := func(file, text string) {
		path := filepath.Join(root, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	streams := func() []string {
		found, err := listenStreams("a", []string{filepath.Join(root, "etc"), filepath.Join(root, "lib")})
		require.NoError(t, err)
		return found
	}
	write("lib/spdk-proxy.socket", "[Socket]\nListenStream=0.0.0.0:9009\n")
	assert.Empty(t, streams(), "spdk-proxy.socket belongs to another service")
	write("lib/spdk-proxy@.socket", "[Socket]\nBacklog=1\n")
	assert.Empty(t, streams())
	write("etc/spdk-proxy@b.socket.d/listen.conf", "[Socket]\nListenStream=0.0.0.0:9002\n")
	assert.Empty(t, streams())
	write("etc/spdk-proxy@a.socket.d/listen.conf", "[Socket]\nListenStream=0.0.0.0:9001\n")
	assert.Equal(t, []string{"0.0.0.0:9001"}, streams())
	write("etc/spdk-proxy@.socket.d/listen.conf", "[Socket]\nListenStream=0.0.0.0:9000\n")
	assert.Equal(t, []string{"0.0.0.0:9001"}, streams(), "the instance's own drop-in hides the template's of the same name")
	write("etc/spdk-proxy@.socket.d/more.conf", "[Socket]\nListenStream=/run/x\n")
	assert.Equal(t, []string{"0.0.0.0:9001", "/run/x"}, streams())
	require.ErrorContains(t, checkSocketUnit(places{https: "0.0.0.0:9009"}, "a", []string{filepath.Join(root, "etc"), filepath.Join(root, "lib")}), "spdk-proxy@a.socket listens at 0.0.0.0:9001")
	write("etc/spdk-proxy@a.socket", "[Socket]\nListenStream=9003\n")
	assert.Equal(t, []string{"9003", "0.0.0.0:9001", "/run/x"}, streams())
}
