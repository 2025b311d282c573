package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = repository
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s %q: %s%s", name, args, out, stderr.String())
	return string(out)
}

// packaged lists the files in the packages, with their modes as shown by `ls`.
var packaged = map[string]string{
	"/usr/bin/spdk-proxy":                                                   "-rwxr-xr-x",
	"/usr/lib/systemd/system/spdk-proxy.service":                            "-rw-r--r--",
	"/usr/lib/systemd/system/spdk-proxy.socket":                             "-rw-r--r--",
	"/usr/lib/systemd/system/spdk-proxy-grant.path":                         "-rw-r--r--",
	"/usr/lib/systemd/system/spdk-proxy-grant.service":                      "-rw-r--r--",
	"/usr/lib/systemd/system/spdk-proxy-keys.socket":                        "-rw-r--r--",
	"/usr/lib/systemd/system/spdk-proxy-keys@.service":                      "-rw-r--r--",
	"/usr/lib/systemd/system/spdk-proxy@.service":                           "-rw-r--r--",
	"/usr/lib/systemd/system/spdk-proxy@.socket":                            "-rw-r--r--",
	"/usr/lib/systemd/system/spdk-proxy-grant@.path":                        "-rw-r--r--",
	"/usr/lib/systemd/system/spdk-proxy-grant@.service":                     "-rw-r--r--",
	"/usr/lib/systemd/system/spdk-proxy-keys@.socket":                       "-rw-r--r--",
	"/usr/lib/sysusers.d/spdk-proxy.conf":                                   "-rw-r--r--",
	"/usr/lib/tmpfiles.d/spdk-proxy.conf":                                   "-rw-r--r--",
	"/usr/share/doc/spdk-proxy/examples/spdk_tgt.service.d/spdk-proxy.conf": "-rw-r--r--",
	"/usr/share/doc/spdk-proxy/README.md":                                   "-rw-r--r--",
	"/usr/share/doc/spdk-proxy/CHANGELOG.md":                                "-rw-r--r--",
	"/usr/share/doc/spdk-proxy/SECURITY.md":                                 "-rw-r--r--",
	"/usr/share/doc/spdk-proxy/systemd/spdk-proxy.yaml":                     "-rw-r--r--",
	"/usr/share/bash-completion/completions/spdk-proxy":                     "-rw-r--r--",
	"/usr/share/fish/vendor_completions.d/spdk-proxy.fish":                  "-rw-r--r--",
	"/etc/spdk-proxy":                 "drwxr-x---",
	"/etc/spdk-proxy/secrets":         "drwx------",
	"/etc/spdk-proxy/spdk-proxy.yaml": "-rw-r-----",
}

// packagedBy adds the files from the repository to packaged, and the license at the path for the
// package format.
func packagedBy(t *testing.T, license string) map[string]string {
	all := maps.Clone(packaged)
	all[license] = "-rw-r--r--"
	zsh := "/usr/share/zsh/vendor-completions/_spdk-proxy"
	if strings.Contains(license, "/licenses/") { // an rpm package
		zsh = "/usr/share/zsh/site-functions/_spdk-proxy"
	}
	all[zsh] = "-rw-r--r--"
	for _, pattern := range []string{"docs/*.md", "docs/upstream/*.md", "deploy/monitoring/*.dashboard.json", "deploy/monitoring/*.rules.yaml"} {
		found, err := filepath.Glob(filepath.Join(repository, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found)
		for _, path := range found {
			name, err := filepath.Rel(repository, path)
			require.NoError(t, err)
			all["/usr/share/doc/spdk-proxy/"+name] = "-rw-r--r--"
		}
	}
	return all
}

const manPages = "/usr/share/man/man1/"

// takeManPages removes the man pages from found, and returns the commands that they describe.
func takeManPages(found map[string]string) (commands []string) {
	for path, mode := range found {
		if name, ok := strings.CutPrefix(path, manPages); ok && mode == "-rw-r--r--" {
			commands = append(commands, strings.TrimSuffix(name, ".1.gz"))
			delete(found, path)
		}
	}
	slices.Sort(commands)
	return commands
}

const configFile = "/etc/spdk-proxy/spdk-proxy.yaml"

func TestPackagesContainAllFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	bin := t.TempDir()
	output(t, "make", "package", "BIN="+bin, "PACKAGE_VERSION=1.2.3", "GOARCH=amd64")
	t.Run("deb", func(t *testing.T) {
		requireProgram(t, "dpkg-deb")
		checkDeb(t, filepath.Join(bin, "spdk-proxy_1.2.3-1_amd64.deb"))
	})
	t.Run("rpm", func(t *testing.T) {
		requireProgram(t, "rpm")
		checkRPM(t, filepath.Join(bin, "spdk-proxy-1.2.3-1.x86_64.rpm"))
	})
	again := t.TempDir()
	output(t, "make", "package", "BIN="+again, "PACKAGE_VERSION=1.2.3", "GOARCH=amd64")
	first, err := os.ReadFile(filepath.Join(bin, "spdk-proxy_1.2.3-1_amd64.deb"))
	require.NoError(t, err)
	second, err := os.ReadFile(filepath.Join(again, "spdk-proxy_1.2.3-1_amd64.deb"))
	require.NoError(t, err)
	assert.True(t, slices.Equal(first, second), "the same source must give the same package")
}

func requireProgram(t *testing.T, name string) {
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed", name)
	}
}

func checkDeb(t *testing.T, deb string) {
	assert.Equal(t, "1.2.3-1\n", output(t, "dpkg-deb", "-f", deb, "Version"))
	assert.Equal(t, configFile+"\n", output(t, "dpkg-deb", "-I", deb, "conffiles"), "an upgrade must keep the configuration")
	found := map[string]string{}
	for line := range strings.Lines(output(t, "dpkg-deb", "-c", deb)) {
		words := strings.Fields(line)
		path := strings.TrimSuffix(strings.TrimPrefix(words[5], "."), "/")
		assert.Equal(t, "root/root", words[1], path)
		if words[0] != "drwxr-xr-x" { // system directories
			found[path] = words[0]
		}
	}
	pages := takeManPages(found)
	assert.Equal(t, packagedBy(t, "/usr/share/doc/spdk-proxy/copyright"), found)
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		checkScript(t, output(t, "dpkg-deb", "-I", deb, name))
	}

	root := t.TempDir()
	output(t, "dpkg-deb", "-x", deb, root)
	program := filepath.Join(root, "usr/bin/spdk-proxy")
	assert.Contains(t, output(t, program, "version"), "spdk-proxy v1.2.3 ")
	for _, command := range []string{"spdk-proxy", "spdk-proxy-call", "spdk-proxy-saved-use"} {
		assert.Contains(t, pages, command)
	}
	for _, page := range pages {
		command := strings.TrimPrefix(page, "spdk-proxy")
		assert.NoError(t, exec.Command("sh", "-c", program+strings.ReplaceAll(command, "-", " ")+" --help || "+program+" "+strings.TrimPrefix(command, "-")+" --help").Run(), "%s.1 must describe a command", page)
		text := output(t, "gzip", "-dc", filepath.Join(root, manPages, page+".1.gz"))
		assert.Contains(t, text, `"spdk-proxy v1.2.3`, "the version in %s.1", page)
	}
	units, err := filepath.Glob(filepath.Join(root, "usr/lib/systemd/system/*"))
	require.NoError(t, err)
	commands := 0
	for _, path := range append(units, filepath.Join(root, "usr/share/doc/spdk-proxy/examples/spdk_tgt.service.d/spdk-proxy.conf")) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range execLine.FindAllStringSubmatch(string(text), -1) {
			commands++
			assert.Contains(t, output(t, program, append(strings.Fields(strings.ReplaceAll(m[2], "%i", "a")), "--help")...), "Usage:\n  spdk-proxy "+strings.Fields(m[2])[0], path)
		}
	}
	assert.Equal(t, 12, commands, "of units and examples")
}

var (
	execLine = regexp.MustCompile(`(?m)^#?\s*Exec(\w+)=-?/usr/bin/spdk-proxy (.*)$`)
	unitName = regexp.MustCompile(`spdk-proxy[\w@*-]*\.(service|socket|path)`)
)

// checkScript checks a maintainer script's syntax, and that the units named in it exist.
func checkScript(t *testing.T, script string) {
	cmd := exec.Command("sh", "-n")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	for _, name := range unitName.FindAllString(script, -1) {
		assert.FileExists(t, filepath.Join(repository, "systemd", strings.Replace(name, "*", "", 1)))
	}
}

// After an upgrade, the scripts restart the service if the new version accepts the configuration.
// Otherwise, the previous version continues to run.
func TestUpgradeRestartsOnlyAValidService(t *testing.T) {
	const restarted, instance = "systemctl try-restart spdk-proxy.service\n", "systemctl try-restart spdk-proxy@a.service\n"
	for name, script := range map[string][]string{
		"deb": {"deploy/package/deb/postinst", "configure", "1.2.2-1"},
		"rpm": {"deploy/package/rpm/postun", "1"},
	} {
		for state, c := range map[string]struct {
			active, sound string
			restarts      bool
			says          string
		}{
			"running":               {"true", "true", true, ""},
			"running, and refusing": {"true", "false", false, "The previous version of the service continues to run: correct the file, then systemctl restart spdk-proxy@a.service"},
			"not running":           {"false", "true", false, ""},
		} {
			t.Run(name+" "+state, func(t *testing.T) {
				stdout, stderr := runScript(t, script, c.active, c.sound)
				assert.Contains(t, stdout, "systemctl daemon-reload\n")
				assert.Contains(t, stdout, "systemctl try-restart spdk-proxy-grant.path spdk-proxy-keys.socket\n")
				assert.Contains(t, stdout, "systemctl try-restart spdk-proxy-grant@*.path spdk-proxy-keys@*.socket\n")
				assert.Equal(t, c.restarts, strings.Contains(stdout, restarted), stdout)
				assert.Equal(t, c.restarts, strings.Contains(stdout, instance), stdout)
				assert.Equal(t, c.active == "true", strings.Contains(stdout, "spdk-proxy check-config /etc/spdk-proxy/spdk-proxy.yaml\n"))
				assert.Equal(t, c.active == "true", strings.Contains(stdout, "spdk-proxy check-config /etc/spdk-proxy/a.yaml\n"))
				assert.Contains(t, stderr, c.says)
				assert.Equal(t, c.says == "", stderr == "", stderr)
			})
		}
	}
	for name, script := range map[string][]string{
		"deb, first":    {"deploy/package/deb/postinst", "configure", ""},
		"rpm, first":    {"deploy/package/rpm/post", "1"},
		"rpm, upgraded": {"deploy/package/rpm/post", "2"},
	} {
		stdout, _ := runScript(t, script, "true", "true")
		assert.NotContains(t, stdout, "restart", name)
		assert.Contains(t, stdout, "systemd-sysusers spdk-proxy.conf\nsystemd-tmpfiles --create spdk-proxy.conf\n", name)
		assert.Equal(t, name != "rpm, upgraded", strings.Contains(stdout, "systemctl enable --now spdk-proxy\n"), name)
	}
}

// runScript runs a maintainer script with stubs for the commands that it calls. The stubs print
// their arguments.
func runScript(t *testing.T, script []string, active, sound string) (stdout, stderr string) {
	text, err := os.ReadFile(filepath.Join(repository, script[0]))
	require.NoError(t, err)
	bin := t.TempDir()
	for command, does := range map[string]string{
		"systemctl":        `[ "$2" != is-active ] || exec ` + active,
		"spdk-proxy":       `exec ` + sound,
		"systemd-sysusers": ":",
		"systemd-tmpfiles": ":",
	} {
		program := "#!/bin/sh\n[ \"$1\" != list-units ] || { echo spdk-proxy@a.service loaded active running; exit; }\necho " + command + ` "$@"` + "\n" + does + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(bin, command), []byte(program), 0o755))
	}
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", strings.ReplaceAll(string(text), "/run/systemd/system", bin), "script"}, script[1:]...)...)
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), errs.String())
	return out.String(), errs.String()
}

func checkRPM(t *testing.T, rpm string) {
	assert.Equal(t, "1.2.3-1", output(t, "rpm", "-qp", "--queryformat", "%{VERSION}-%{RELEASE}", rpm))
	found, flags := map[string]string{}, map[string]string{}
	for line := range strings.Lines(output(t, "rpm", "-qp", "--queryformat", "[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILEFLAGS:fflags}\n]", rpm)) {
		words := append(strings.Fields(line), "")
		found[words[0]], flags[words[0]] = words[1], words[3]
		assert.Equal(t, "root/root", words[2], words[0])
		if words[1] == "drwxr-xr-x" { // documentation directories
			delete(found, words[0])
		}
	}
	assert.NotEmpty(t, takeManPages(found))
	assert.Equal(t, packagedBy(t, "/usr/share/licenses/spdk-proxy/LICENSE"), found)
	for path := range found {
		if strings.HasPrefix(path, "/usr/share/doc/") && !strings.Contains(path, "/examples/") {
			assert.Equal(t, "d", flags[path], "%s is documentation to rpm", path)
		}
	}
	assert.Equal(t, "cn", flags[configFile], "an upgrade must not replace the configuration")
	for _, tag := range []string{"POSTIN", "PREUN", "POSTUN"} {
		checkScript(t, output(t, "rpm", "-qp", "--queryformat", "%{"+tag+"}", rpm))
	}
}

// The manual's commands for the first start work with the files that `make install` installs.
func TestDocumentedFirstStartWorks(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(repository, "docs/service.md"))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(page), "Then set a password and start the service:\n```console\n")
	require.True(t, ok)
	commands, _, _ := strings.Cut(rest, "```")

	bin, root, stubs := t.TempDir(), t.TempDir(), t.TempDir()
	output(t, "go", "build", "-o", bin+"/", "./cmd/spdk-proxy")
	output(t, "make", "install", "BIN="+bin, "DESTDIR="+root, "PREFIX=/usr")
	// The stubs treat the directory root as the file system root. systemctl checks that each unit
	// exists there, and spdk-proxy finds its files there.
	for name, script := range map[string]string{
		"systemctl":  `[ "$1 $2" = "enable --now" ] && shift 2 && for unit; do ls ` + root + `/usr/lib/systemd/system/$unit.service; done`,
		"spdk-proxy": `[ $# = 1 ] && [ "$1" = check-config ] && set -- check-config ` + root + configFile + "\nexec " + root + `/usr/bin/spdk-proxy "$@"`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(stubs, name), []byte("#!/bin/sh\nset -e\n"+script+"\n"), 0o755))
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(commands, "/etc/", root+"/etc/"))
	cmd.Env = []string{"PATH=" + stubs + ":" + os.Getenv("PATH")}
	cmd.Stdin = strings.NewReader("a good password\n")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "is valid: 1 user, 0 roles\n")
	assert.Contains(t, string(out), "/spdk-proxy.service\n")
	assert.NotContains(t, string(out), "warning")
}

// Purging the package removes the sockets in /run, and unmasks the units that users have masked as
// described in the manual, so that the next installation works.
func TestPurgeRemovesSocketsAndMasks(t *testing.T) {
	for script, args := range map[string][2]string{"deb/postrm": {"purge", "remove"}, "rpm/postun": {"0", "1"}} {
		text, err := os.ReadFile(filepath.Join(repository, "deploy/package", script))
		require.NoError(t, err)
		root, stubs := t.TempDir(), t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(stubs, "systemctl"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o755))
		here := strings.NewReplacer("/etc/", root+"/etc/", "/var/", root+"/var/", "/run/", root+"/run/").Replace(string(text))
		require.NoError(t, os.Mkdir(filepath.Join(root, "run"), 0o755))
		sockets := []string{"spdk-proxy-rpc.sock", "spdk-proxy-keys.sock", "spdk-proxy-keys@a.sock", "spdk-proxy-keys@b.sock", "other.sock"}
		for i, arg := range args {
			for _, socket := range sockets {
				require.NoError(t, os.WriteFile(filepath.Join(root, "run", socket), nil, 0o600))
			}
			cmd := exec.Command("sh", "-c", here, script, arg)
			cmd.Env = []string{"PATH=" + stubs + ":" + os.Getenv("PATH")}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			left, err := os.ReadDir(filepath.Join(root, "run"))
			require.NoError(t, err)
			assert.Len(t, left, []int{1, len(sockets)}[i], "%s %s", script, arg)
			if i == 1 {
				assert.NotContains(t, string(out), "unmask", "%s %s", script, arg)
				continue
			}
			_, units, unmasked := strings.Cut(string(out), "--no-reload unmask ")
			require.True(t, unmasked, "%s %s", script, arg)
			for unit := range strings.FieldsSeq(units) {
				assert.FileExists(t, filepath.Join(repository, "systemd", unit))
			}
			assert.Contains(t, units, "spdk-proxy-grant.path spdk-proxy-grant.service", "docs/service.md tells users to mask these units")
		}
	}
}

func TestUninstallRemovesInstalledFiles(t *testing.T) {
	bin, root := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "spdk-proxy"), []byte("#!/bin/sh\n"), 0o755))
	install := func(target string) { output(t, "make", target, "BIN="+bin, "DESTDIR="+root, "PREFIX=/opt/spdkgate") }
	install("install")
	mine := filepath.Join(root, configFile)
	require.NoError(t, os.WriteFile(mine, []byte("mine"), 0o640))
	install("install")
	kept, err := os.ReadFile(mine)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(kept))

	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if name := strings.TrimPrefix(path, root); !d.IsDir() || strings.HasPrefix(name, "/etc/") {
			found[strings.Replace(name, "/opt/spdkgate/", "/usr/", 1)] = info.Mode().String()
		}
		return err
	}))
	for path, mode := range packaged {
		if !strings.HasPrefix(path, "/usr/share/") {
			assert.Equal(t, mode, found[path], path)
		}
	}
	for _, name := range []string{"spdk-proxy.service", "spdk-proxy-grant.service", "spdk-proxy-keys@.service"} {
		text, err := os.ReadFile(filepath.Join(root, "opt/spdkgate/lib/systemd/system", name))
		require.NoError(t, err)
		assert.Contains(t, string(text), "=/opt/spdkgate/bin/spdk-proxy ")
		assert.NotContains(t, string(text), "/usr/bin/spdk-proxy")
	}

	install("uninstall")
	var left []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if !d.IsDir() {
			left = append(left, strings.TrimPrefix(path, root))
		}
		return err
	}))
	assert.Equal(t, []string{configFile}, left)
}
