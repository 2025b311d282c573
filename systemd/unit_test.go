// Package systemd holds the units, what they need of the system, and the example
// configuration; there is no program in it but this test.
package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
)

const (
	service      = "spdk-proxy.service"
	socket       = "spdk-proxy.socket"
	grantService = "spdk-proxy-grant.service"
	grantPath    = "spdk-proxy-grant.path"
	keysSocket   = "spdk-proxy-keys.socket"
	keysService  = "spdk-proxy-keys@.service"
	dropIn       = "spdk_tgt.service.d/spdk-proxy.conf"
)

// options are a unit's settings, as section/name.
func options(t *testing.T, file string) map[string][]string {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	list, err := unit.DeserializeOptions(f)
	require.NoError(t, err)
	values := map[string][]string{}
	for _, o := range list {
		values[o.Section+"/"+o.Name] = append(values[o.Section+"/"+o.Name], o.Value)
	}
	return values
}

// configuration is the example's, with what it leaves out.
func configuration(t *testing.T) *config.Config {
	secrets := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", secrets)
	hash, err := os.ReadFile("../proxy/config/testdata/hash")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(secrets, "secrets_admin.hash"), hash, 0o600))
	c, err := config.Load("spdk-proxy.yaml")
	require.NoError(t, err)
	return c
}

// What was frozen is thawed however the service ends, without the configuration, which may be what ended it. So the
// command's own default is where the example's journal is; it says so in its help.
func TestServiceThaws(t *testing.T) {
	o := options(t, service)
	assert.Equal(t, []string{"/usr/bin/spdk-proxy thaw"}, o["Service/ExecStopPost"])
	assert.Equal(t, []string{"0"}, o["Unit/StartLimitIntervalSec"])
	dir := configuration(t).Target.Freeze.Dir
	assert.Equal(t, "/var/lib/"+o["Service/StateDirectory"][0], filepath.Dir(dir))
	command, err := os.ReadFile("../cmd/spdk-proxy/thaw.go")
	require.NoError(t, err)
	assert.Contains(t, string(command), `defaultFrozen = "`+dir+`"`)
}

func TestService(t *testing.T) {
	o := options(t, service)
	for key, want := range map[string]string{
		"Service/Type": "notify", "Service/NoNewPrivileges": "yes", "Service/ProtectSystem": "strict", "Service/CapabilityBoundingSet": "",
		"Service/LoadCredential": "secrets:/etc/spdk-proxy/secrets", "Service/StateDirectory": "spdk-proxy",
		"Service/RuntimeDirectory":   "spdk-proxy", // for `spdk-proxy reload`
		"Service/PrivateTmp":         "no",         // or /var/tmp/spdk.sock cannot be seen
		"Service/ExecStart":          "/usr/bin/spdk-proxy serve --config /etc/spdk-proxy/spdk-proxy.yaml",
		"Service/ExecReload":         "/usr/bin/spdk-proxy reload",
		"Service/MemoryMax":          "1G", // see DESIGN.md
		"Unit/StartLimitIntervalSec": "0", "Service/Restart": "on-failure", "Install/Also": socket,
	} {
		assert.Equal(t, []string{want}, o[key], key)
	}
	assert.NotEmpty(t, o["Service/WatchdogSec"])
	assert.Equal(t, []string{"0"}, o["Service/LogRateLimitIntervalSec"], "no line of the audit log is dropped")
	for _, family := range []string{"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"} {
		assert.Contains(t, strings.Fields(o["Service/RestrictAddressFamilies"][0]), family)
	}
	wanted := strings.Fields(strings.Join(o["Unit/Wants"], " "))
	assert.Subset(t, strings.Fields(strings.Join(o["Unit/After"], " ")), wanted)
	for _, u := range []string{socket, grantPath, grantService, keysSocket} {
		assert.Contains(t, wanted, u, "enabling the service is enough")
		assert.FileExists(t, u)
	}
	assert.NotContains(t, o, "Unit/Requires", "each may be masked")
}

// What the units, the users and the example configuration say of each other must fit.
func TestUnitsAndConfigurationFit(t *testing.T) {
	o, c := options(t, service), configuration(t)
	assert.Equal(t, []string{c.Listen}, options(t, socket)["Socket/ListenStream"])
	assert.Equal(t, "/var/lib/"+o["Service/StateDirectory"][0], c.TLS.SelfSignedDir)
	stop, err := time.ParseDuration(o["Service/TimeoutStopSec"][0] + "s")
	require.NoError(t, err)
	assert.Greater(t, stop, time.Duration(c.Limits.Drain))
	credential, folder, _ := strings.Cut(o["Service/LoadCredential"][0], ":")
	assert.Equal(t, credential, filepath.Base(folder), "as check-config finds it")
	require.NotEmpty(t, c.Users)
	for _, u := range c.Users {
		assert.True(t, strings.HasPrefix(u.PasswordHashFile, "$CREDENTIALS_DIRECTORY/"+credential+"_"), u.PasswordHashFile)
	}

	group := o["Service/SupplementaryGroups"][0]
	grant := "/usr/bin/spdk-proxy grant-socket --group " + group + " "
	assert.Equal(t, []string{c.Target.Socket}, options(t, grantPath)["Path/PathChanged"])
	assert.Equal(t, []string{grant + c.Target.Socket}, options(t, grantService)["Service/ExecStart"])
	in := options(t, dropIn)
	assert.Equal(t, []string{"-" + grant + "--wait 10m " + c.Target.Socket}, in["Service/ExecStartPost"], "storage does not end for want of a proxy")
	assert.Equal(t, []string{"15min"}, in["Service/TimeoutStartSec"], "longer than that")

	made := lines(t, "spdk-proxy.sysusers")
	assert.Contains(t, made, "g "+group+" -")
	assert.Contains(t, made, "u "+o["Service/User"][0]+` - "Access to SPDK's RPCs"`)
	assert.Len(t, made, 2, "nobody else, and nobody in the group but by the unit")
	owned := lines(t, "spdk-proxy.tmpfiles")
	assert.Contains(t, owned, "z /etc/spdk-proxy 0750 root "+o["Service/Group"][0])
	assert.Contains(t, owned, "z /etc/spdk-proxy/spdk-proxy.yaml 0640 root "+o["Service/Group"][0])
	assert.Contains(t, owned, "d "+folder+" 0700 root root")
}

// What brings a restarted target back fits, too.
func TestSavingAndKeysFit(t *testing.T) {
	o, c := options(t, service), configuration(t)
	assert.Equal(t, "/var/lib/"+o["Service/StateDirectory"][0]+"/target", c.Target.Save.Dir, "where the service may write, and make a folder")
	text, err := os.ReadFile(dropIn)
	require.NoError(t, err)
	current := c.Target.Save.Dir + "/current.json"
	assert.Contains(t, string(text), "ExecStartPre=/usr/bin/spdk-proxy saved prepare --dir "+c.Target.Save.Dir+"\n")
	assert.Contains(t, string(text), "spdk_tgt -c "+current+" --json-ignore-init-errors\n")

	for _, folder := range []string{filepath.Dir(c.Target.Save.Dir), c.Target.Save.Dir} {
		assert.Contains(t, lines(t, "spdk-proxy.tmpfiles"), "d "+folder+" 0700 "+o["Service/User"][0]+" "+o["Service/Group"][0], "there for spdk_tgt's first start")
	}
	listens, keeps := options(t, keysSocket), options(t, keysService)
	assert.Equal(t, []string{c.Target.Keys.Socket}, listens["Socket/ListenStream"])
	assert.Equal(t, o["Service/User"], listens["Socket/SocketUser"])
	assert.Equal(t, []string{"0600"}, listens["Socket/SocketMode"], "whoever may open it may place keys")
	assert.Equal(t, []string{"yes"}, listens["Socket/Accept"])
	assert.Equal(t, []string{"/usr/bin/spdk-proxy keep-keys --dir /var/lib/" + keeps["Service/StateDirectory"][0]}, keeps["Service/ExecStart"])
	assert.Equal(t, []string{"0700"}, keeps["Service/StateDirectoryMode"])
	assert.Equal(t, []string{""}, keeps["Service/CapabilityBoundingSet"])
	assert.NotContains(t, keeps, "Service/User", "spdk_tgt's, which is root")
}

// manual are the drop-ins that docs/service.md shows, by their paths below systemd's folder.
func manual(t *testing.T) map[string]string {
	text, err := os.ReadFile("../docs/service.md")
	require.NoError(t, err)
	shown := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```ini\n# /etc/systemd/system/(\\S+)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		shown[m[1]] = m[2]
	}
	require.Len(t, shown, strings.Count(string(text), "```ini"))
	return shown
}

// What the manual shows for a spdk_tgt that is not root fits the units, and itself.
func TestTheDocumentedDropIns(t *testing.T) {
	shown := manual(t)
	parse := func(name string) map[string][]string {
		path := filepath.Join(t.TempDir(), "drop-in")
		require.NoError(t, os.WriteFile(path, []byte(shown[name]), 0o600))
		return options(t, path)
	}
	o, c := options(t, service), configuration(t)
	spdk := parse(dropIn)
	user := spdk["Service/User"][0]
	socket, saved := "/run/"+spdk["Service/RuntimeDirectory"][0]+"/spdk.sock", "/run/"+spdk["Service/RuntimeDirectory"][0]+"/saved.json"
	group := o["Service/SupplementaryGroups"]
	assert.Equal(t, group, spdk["Service/SupplementaryGroups"], "or it could not give its socket to it")
	assert.Equal(t, []string{"-/usr/bin/spdk-proxy grant-socket --group " + group[0] + " --wait 10m " + socket}, spdk["Service/ExecStartPost"])
	assert.Equal(t, []string{
		"+/usr/bin/spdk-proxy saved prepare --dir " + c.Target.Save.Dir + " --copy-to " + saved + " --for " + user,
		"-+/usr/bin/spdk-proxy hand-over-keys --dir /var/lib/" + options(t, keysService)["Service/StateDirectory"][0] + " --to " + user,
	}, spdk["Service/ExecStartPre"])
	for _, command := range spdk["Service/ExecStartPre"] {
		// Root follows whatever lies in a folder of another user's, unless the program knows better.
		assert.True(t, strings.HasPrefix(strings.TrimLeft(command, "-+"), "/usr/bin/spdk-proxy "), command)
	}
	assert.Equal(t, []string{"", "/usr/local/bin/spdk_tgt -r " + socket + " -c " + saved + " --json-ignore-init-errors"}, spdk["Service/ExecStart"])
	assert.Equal(t, []string{user}, parse(keysService + ".d/user.conf")["Service/User"])
	assert.Equal(t, []string{"no"}, parse(service + ".d/users.conf")["Service/PrivateUsers"])
}

// lines are those that say something, with single spaces.
func lines(t *testing.T, file string) (said []string) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(words[0], "#") {
			said = append(said, strings.Join(words, " "))
		}
	}
	return said
}

// systemd's own opinion, where it is installed.
func TestSystemdAnalyze(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{service, socket, grantPath, grantService, keysSocket, keysService} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		// It insists on a program that exists.
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "/usr/bin/spdk-proxy ", os.Args[0]+" ")), 0o600))
		paths = append(paths, path)
	}
	own := `[Service]
ExecStart=` + os.Args[0] + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "spdk_tgt.service"), []byte(own), 0o600))
	paths = append(paths, filepath.Join(dir, "spdk_tgt.service"))
	for name, text := range manual(t) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		text = strings.NewReplacer("/usr/bin/spdk-proxy ", os.Args[0]+" ", "/usr/local/bin/spdk_tgt ", os.Args[0]+" ").Replace(text)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	out, err := exec.Command("systemd-analyze", append([]string{"verify", "--man=no"}, paths...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.NotContains(t, string(out), "spdk", "no complaint about these units, and the manual's drop-ins")

	for _, name := range []string{service, grantService, keysService} {
		out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=15", filepath.Join(dir, name)).CombinedOutput()
		assert.NoError(t, err, "exposure above 1.5:\n%s", out)
	}
}
