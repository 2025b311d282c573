// Package systemd contains the systemd units, the users and directories that they need, and the
// example configuration. Its only code is tests.
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
	proxyservice "github.com/spdkgate/spdkgate/proxy/service"
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

// options returns a unit's settings by section/name.
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

// configuration returns the example configuration, with defaults for keys that it does not set.
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

// However the service ends, systemd then runs a command that thaws frozen volumes. The command does
// not read the configuration, because the configuration may be the reason why the service ended.
// Therefore, the example's journal must be at the command's default path.
func TestServiceThawsVolumesWhenItEnds(t *testing.T) {
	o := options(t, service)
	assert.Equal(t, []string{"/usr/bin/spdk-proxy thaw"}, o["Service/ExecStopPost"])
	assert.Equal(t, []string{"0"}, o["Unit/StartLimitIntervalSec"])
	dir := configuration(t).Target.Freeze.Dir
	assert.Equal(t, "/var/lib/"+o["Service/StateDirectory"][0], filepath.Dir(dir))
	assert.Equal(t, filepath.Dir(dir), proxyservice.Instance("").StateDirectory())
	command, err := os.ReadFile("../cmd/spdk-proxy/thaw.go")
	require.NoError(t, err)
	assert.Contains(t, string(command), `frozenName = "`+filepath.Base(dir)+`"`)
}

func TestServiceHasTheDocumentedOptions(t *testing.T) {
	o := options(t, service)
	for key, want := range map[string]string{
		"Service/Type": "notify", "Service/NoNewPrivileges": "yes", "Service/ProtectSystem": "strict", "Service/CapabilityBoundingSet": "",
		"Service/LoadCredential": "secrets:/etc/spdk-proxy/secrets", "Service/StateDirectory": "spdk-proxy",
		// needed for log.calls.path
		"Service/LogsDirectory": "spdk-proxy", "Service/LogsDirectoryMode": "0700",
		"Service/RuntimeDirectory":   "spdk-proxy", // needed for `spdk-proxy reload`
		"Service/PrivateTmp":         "no",         // because /var/tmp/spdk.sock must be visible
		"Service/ExecStart":          "/usr/bin/spdk-proxy serve --config /etc/spdk-proxy/spdk-proxy.yaml",
		"Service/ExecReload":         "/usr/bin/spdk-proxy reload",
		"Service/MemoryMax":          "1G", // see docs/measurements.md, "Memory of the proxy"
		"Unit/StartLimitIntervalSec": "0", "Service/Restart": "on-failure", "Install/Also": socket,
	} {
		assert.Equal(t, []string{want}, o[key], key)
	}
	assert.NotEmpty(t, o["Service/WatchdogSec"])
	assert.Equal(t, []string{"0"}, o["Service/LogRateLimitIntervalSec"], "systemd must not drop lines of the audit log")
	for _, family := range []string{"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"} {
		assert.Contains(t, strings.Fields(o["Service/RestrictAddressFamilies"][0]), family)
	}
	wanted := strings.Fields(strings.Join(o["Unit/Wants"], " "))
	assert.Subset(t, strings.Fields(strings.Join(o["Unit/After"], " ")), wanted)
	for _, u := range []string{socket, grantPath, grantService, keysSocket} {
		assert.Contains(t, wanted, u, "enabling the service must start it, too")
		assert.FileExists(t, u)
	}
	assert.NotContains(t, o, "Unit/Requires", "an administrator may mask each of the other units")
}

// The units, the users and the example configuration agree with each other.
func TestUnitsMatchTheConfiguration(t *testing.T) {
	o, c := options(t, service), configuration(t)
	assert.Equal(t, []string{c.Listen}, options(t, socket)["Socket/ListenStream"])
	assert.Equal(t, "/var/lib/"+o["Service/StateDirectory"][0], c.TLS.SelfSignedDir)
	stop, err := time.ParseDuration(o["Service/TimeoutStopSec"][0] + "s")
	require.NoError(t, err)
	assert.Greater(t, stop, time.Duration(c.Limits.Drain))
	credential, folder, _ := strings.Cut(o["Service/LoadCredential"][0], ":")
	assert.Equal(t, credential, filepath.Base(folder), "check-config expects this name")
	require.NotEmpty(t, c.Users)
	for _, u := range c.Users {
		assert.True(t, strings.HasPrefix(u.PasswordHashFile, "$CREDENTIALS_DIRECTORY/"+credential+"_"), u.PasswordHashFile)
	}

	group := o["Service/SupplementaryGroups"][0]
	grant := "/usr/bin/spdk-proxy grant-socket --group " + group + " "
	assert.Equal(t, []string{c.Target.Socket}, options(t, grantPath)["Path/PathChanged"])
	assert.Equal(t, []string{grant + c.Target.Socket}, options(t, grantService)["Service/ExecStart"])
	in := options(t, dropIn)
	assert.Equal(t, []string{"-" + grant + "--wait 10m " + c.Target.Socket}, in["Service/ExecStartPost"], "- : spdk_tgt must not end if this fails")
	assert.Equal(t, []string{"15min"}, in["Service/TimeoutStartSec"], "must be longer than --wait")

	made := lines(t, "spdk-proxy.sysusers")
	assert.Contains(t, made, "g "+group+" -")
	assert.Contains(t, made, "u "+o["Service/User"][0]+` - "Access to SPDK's RPCs"`)
	assert.Len(t, made, 2, "no other user, and only the unit adds users to the group")
	owned := lines(t, "spdk-proxy.tmpfiles")
	assert.Contains(t, owned, "z /etc/spdk-proxy 0750 root "+o["Service/Group"][0])
	assert.Contains(t, owned, "z /etc/spdk-proxy/spdk-proxy.yaml 0640 root "+o["Service/Group"][0])
	assert.Contains(t, owned, "d "+folder+" 0700 root root")
}

// The units and settings that restore a target after a restart agree with each other.
func TestSavingAndKeysMatchTheConfiguration(t *testing.T) {
	o, c := options(t, service), configuration(t)
	assert.Equal(t, "/var/lib/"+o["Service/StateDirectory"][0]+"/target", c.Target.Save.Dir, "the service must be able to create this directory")
	text, err := os.ReadFile(dropIn)
	require.NoError(t, err)
	current := c.Target.Save.Dir + "/current.json"
	assert.Contains(t, string(text), "ExecStartPre=/usr/bin/spdk-proxy saved prepare --dir "+c.Target.Save.Dir+"\n")
	assert.Contains(t, string(text), "spdk_tgt -c "+current+" --json-ignore-init-errors\n")

	for _, folder := range []string{filepath.Dir(c.Target.Save.Dir), c.Target.Save.Dir} {
		assert.Contains(t, lines(t, "spdk-proxy.tmpfiles"), "d "+folder+" 0700 "+o["Service/User"][0]+" "+o["Service/Group"][0], "the directory must exist at spdk_tgt's first start")
	}
	listens, keeps := options(t, keysSocket), options(t, keysService)
	assert.Equal(t, []string{c.Target.Keys.Socket}, listens["Socket/ListenStream"])
	assert.Equal(t, o["Service/User"], listens["Socket/SocketUser"])
	assert.Equal(t, []string{"0600"}, listens["Socket/SocketMode"], "who can open the socket can place keys")
	assert.Equal(t, []string{"yes"}, listens["Socket/Accept"])
	assert.Equal(t, []string{"/usr/bin/spdk-proxy keep-keys --dir /var/lib/" + keeps["Service/StateDirectory"][0]}, keeps["Service/ExecStart"])
	assert.Equal(t, []string{"0700"}, keeps["Service/StateDirectoryMode"])
	assert.Equal(t, []string{""}, keeps["Service/CapabilityBoundingSet"])
	assert.NotContains(t, keeps, "Service/User", "it must run as spdk_tgt's user, which is root")
}

// When a socket unit stops, for example because the package is removed, its UNIX socket is removed.
func TestStoppedSocketsAreRemoved(t *testing.T) {
	for _, name := range []string{socket, keysSocket, instanceSocket, instanceKeysSocket} {
		assert.Equal(t, []string{"yes"}, options(t, name)["Socket/RemoveOnStop"], name)
	}
}

// manual returns the drop-ins in docs/service.md, by their paths below systemd's directory.
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

// The manual's drop-ins for an spdk_tgt that does not run as root agree with the units and with
// each other.
func TestDocumentedDropInsMatchTheUnits(t *testing.T) {
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
	assert.Equal(t, group, spdk["Service/SupplementaryGroups"], "spdk_tgt's user must be in the group to give it the socket")
	assert.Equal(t, []string{"-/usr/bin/spdk-proxy grant-socket --group " + group[0] + " --wait 10m " + socket}, spdk["Service/ExecStartPost"])
	assert.Equal(t, []string{
		"+/usr/bin/spdk-proxy saved prepare --dir " + c.Target.Save.Dir + " --copy-to " + saved + " --for " + user,
		"-+/usr/bin/spdk-proxy hand-over-keys --dir /var/lib/" + options(t, keysService)["Service/StateDirectory"][0] + " --to " + user,
	}, spdk["Service/ExecStartPre"])
	for _, command := range spdk["Service/ExecStartPre"] {
		// Commands that run as root must not follow links in another user's directory, which only
		// spdk-proxy's own commands ensure.
		assert.True(t, strings.HasPrefix(strings.TrimLeft(command, "-+"), "/usr/bin/spdk-proxy "), command)
	}
	assert.Equal(t, []string{"", "/usr/local/bin/spdk_tgt -r " + socket + " -c " + saved + " --json-ignore-init-errors"}, spdk["Service/ExecStart"])
	assert.Equal(t, []string{user}, parse(keysService + ".d/user.conf")["Service/User"])
	assert.Equal(t, []string{"no"}, parse(service + ".d/users.conf")["Service/PrivateUsers"])
}

// lines returns the lines of a file without comments and empty lines, with single spaces.
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

// If systemd-analyze is installed, it reports no problem.
func TestSystemdAnalyzeReportsNoProblem(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{service, socket, grantPath, grantService, keysSocket, keysService, instanceService, instanceSocket, instanceGrantPath, instanceGrantService, instanceKeysSocket} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		path := filepath.Join(dir, strings.Replace(name, "proxy@.", "proxy@nvme.", 1)) // the instance in the manual
		// Replace the program's path, because systemd-analyze requires the program to exist.
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
	assert.NotContains(t, string(out), "spdk", "systemd-analyze must not complain about these units and the manual's drop-ins")

	for _, name := range []string{service, grantService, keysService, instanceService, instanceGrantService} {
		out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=15", filepath.Join(dir, strings.Replace(name, "proxy@.", "proxy@nvme.", 1))).CombinedOutput()
		assert.NoError(t, err, "exposure above 1.5:\n%s", out)
	}
}
