package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	proxyservice "github.com/spdkgate/spdkgate/proxy/service"
)

// These template units allow several targets on a host.
const (
	instanceService      = "spdk-proxy@.service"
	instanceSocket       = "spdk-proxy@.socket"
	instanceGrantPath    = "spdk-proxy-grant@.path"
	instanceGrantService = "spdk-proxy-grant@.service"
	instanceKeysSocket   = "spdk-proxy-keys@.socket"
)

// settings returns the lines of a unit without comments.
func settings(t *testing.T, file string) string { return strings.Join(lines(t, file), "\n") }

// The template units equal the units for a single target, except for the instance's names and
// paths.
func TestTemplatesMatchTheUnits(t *testing.T) {
	for template, c := range map[string]struct {
		unit    string
		replace []string
	}{
		instanceService: {service, []string{
			"SPDK's RPCs", "SPDK's RPCs (%i)", "/etc/spdk-proxy/spdk-proxy.yaml", "/etc/spdk-proxy/%i.yaml", "Directory=spdk-proxy", "Directory=spdk-proxy@%i", "spdk-proxy thaw", "spdk-proxy thaw --instance %i",
			"spdk_tgt.service", "spdk_tgt@%i.service", "spdk-proxy.socket", "spdk-proxy@%i.socket", "spdk-proxy-grant.", "spdk-proxy-grant@%i.", "spdk-proxy-keys.", "spdk-proxy-keys@%i.",
		}},
		instanceSocket:       {socket, []string{"spdk-proxy\n", "spdk-proxy (%i)\n", "ListenStream=0.0.0.0:9009\n", ""}},
		instanceGrantPath:    {grantPath, []string{"socket appears", "socket appears (%i)", "/var/tmp/spdk.sock", "/run/spdk-%i/spdk.sock"}},
		instanceGrantService: {grantService, []string{"open SPDK's socket", "open SPDK's socket (%i)", "/var/tmp/spdk.sock", "/run/spdk-%i/spdk.sock"}},
		instanceKeysSocket:   {keysSocket, []string{"for spdk_tgt", "for spdk_tgt (%i)", "/run/spdk-proxy-keys.sock", "/run/spdk-proxy-keys@%i.sock"}},
	} {
		assert.Equal(t, strings.NewReplacer(c.replace...).Replace(settings(t, c.unit)), settings(t, template), template)
	}
}

// The program and the template units derive the same names and paths from an instance's name.
func TestTemplatesMatchTheProgram(t *testing.T) {
	expand := func(text string) string { return strings.ReplaceAll(text, "%i", "a") }
	o, i := options(t, instanceService), proxyservice.Instance("a")
	assert.Contains(t, expand(o["Service/ExecStart"][0]), " --config "+i.Config())
	assert.Equal(t, i.StateDirectory(), "/var/lib/"+expand(o["Service/StateDirectory"][0]))
	of, ok := proxyservice.InstanceOfKeys(expand(options(t, instanceKeysSocket)["Socket/ListenStream"][0]))
	require.True(t, ok)
	assert.Equal(t, i, of)
	assert.Contains(t, lines(t, "spdk-proxy.tmpfiles"), "z /etc/spdk-proxy/*.yaml 0640 root "+o["Service/Group"][0])
	text, err := os.ReadFile("../docs/service.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## Several targets on one host\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, name := range []string{"/run/spdk-proxy-keys@" + "nvme.sock", "/var/lib/spdk-proxy@nvme", "/run/spdk-nvme/spdk.sock", "/etc/spdk-proxy/nvme.yaml", "spdk-proxy@nvme.socket.d/listen.conf"} {
		assert.Contains(t, section, name)
	}
}

// The documented commands create a configuration that shares no file or socket with the packaged
// configuration.
func TestDocumentedInstanceSharesNoFilesOrSockets(t *testing.T) {
	text, err := os.ReadFile("../docs/service.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Several targets on one host\n")
	_, commands, _ := strings.Cut(section, "```console\ncd /etc/spdk-proxy\n")
	command, _, _ := strings.Cut(commands, "\n")
	require.True(t, strings.HasPrefix(command, "sed ") && strings.HasSuffix(command, " spdk-proxy.yaml > nvme.yaml"), command)
	dir := t.TempDir()
	example, err := os.ReadFile("spdk-proxy.yaml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "spdk-proxy.yaml"), example, 0o600))
	sed := exec.Command("sh", "-ec", command)
	sed.Dir = dir
	out, err := sed.CombinedOutput()
	require.NoError(t, err, string(out))

	c, err := config.LoadWithoutSecrets(filepath.Join(dir, "nvme.yaml"))
	require.NoError(t, err)
	require.NoError(t, proxyservice.CheckInstance(c, "nvme"))
	assert.Equal(t, "/var/lib/spdk-proxy@nvme/target", c.Target.Save.Dir)
	assert.Equal(t, "/run/spdk-proxy-keys@nvme.sock", c.Target.Keys.Socket)
	assert.Equal(t, "/run/spdk-nvme/spdk.sock", c.Target.Socket)
	assert.Contains(t, manual(t)["spdk-proxy@nvme.socket.d/listen.conf"], "ListenStream="+c.Listen+"\n")
	first, err := config.LoadWithoutSecrets("spdk-proxy.yaml")
	require.NoError(t, err)
	require.Error(t, proxyservice.CheckInstance(first, "nvme"))
}
