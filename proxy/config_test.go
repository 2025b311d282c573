package proxy

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// loadAndCheck does what check-config does.
func loadAndCheck(path string) (*Config, error) {
	c, err := LoadConfig(path)
	if err != nil {
		return nil, err
	}
	return c, check(c, rpcschema.Default())
}

func TestGoodConfigs(t *testing.T) {
	paths, err := filepath.Glob("testdata/config/*.good.yml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		_, err := loadAndCheck(path)
		require.NoError(t, err, path)
	}
}

// Each *.bad.yml says in its first line what the error must say.
func TestBadConfigs(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	paths, err := filepath.Glob("testdata/config/*.bad.yml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			first, _, _ := strings.Cut(string(text), "\n")
			says, ok := strings.CutPrefix(first, "# says: ")
			require.True(t, ok)
			_, err = loadAndCheck(path)
			require.ErrorContains(t, err, says)
			assert.NotContains(t, err.Error(), "hunter2", "values may be secret")
		})
	}
}

func TestEveryMistakeIsReportedAtOnceWithFileAndLine(t *testing.T) {
	path := write(t, "listn: x\nusers: 7\nlog: {level: loud}\n")
	_, err := LoadConfig(path)
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 3)
	for i, want := range []string{"line 1: listn", "line 2: users", "line 3: log.level"} {
		assert.Contains(t, lines[i], path+": "+want)
	}
}

func TestConfigValues(t *testing.T) {
	c, err := LoadConfig("testdata/config/full.good.yml")
	require.NoError(t, err)
	assert.Equal(t, "testdata/config/state", c.TLS.SelfSignedDir, "relative to the file")
	s, err := newSettings(c, rpcschema.Default(), nil)
	require.NoError(t, err)
	assert.Equal(t, 5*time.Second, s.timeoutOf("bdev_get_bdevs"))
	assert.Equal(t, time.Second, s.timeoutOf("spdk_get_version"))
	assert.Equal(t, 2*time.Hour, s.timeoutOf("bdev_lvol_inflate"))
	assert.Equal(t, 10*time.Minute, s.timeoutOf("bdev_lvol_create_lvstore"), "slow methods have time")
	assert.Equal(t, 32<<10, s.maxBody)
	assert.True(t, s.policy.Decide("monitoring", "bdev_get_bdevs").Allowed)
	assert.False(t, s.policy.Decide("monitoring", "bdev_lvol_delete").Allowed)

	c, err = LoadConfig("testdata/config/least.good.yml")
	require.NoError(t, err)
	assert.Equal(t, "/var/tmp/spdk.sock", c.Target.Socket)
	assert.False(t, c.TLS.InsecurePlaintext, "TLS unless told otherwise")
}

func TestSlowMethodsExist(t *testing.T) {
	for name := range slowMethods {
		_, ok := rpcschema.Default().Method(name)
		assert.True(t, ok, name)
	}
}

func TestMissingConfigSaysWhatToDo(t *testing.T) {
	_, err := LoadConfig(filepath.Join(t.TempDir(), "none.yaml"))
	require.ErrorContains(t, err, "there is no configuration at")
	require.ErrorContains(t, err, "--config")
}

func TestCredentialsDirectory(t *testing.T) {
	dir := t.TempDir()
	hash, err := os.ReadFile("testdata/config/hash")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "admin"), hash, 0o600))
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	_, err = loadAndCheck("testdata/config/credentials_not_set.bad.yml")
	require.NoError(t, err)
}

// Two mistakes that everybody makes once, and the words that help.
func TestFilesThatTheServiceCannotRead(t *testing.T) {
	const path = "testdata/config/credentials_not_set.bad.yml"
	t.Setenv("CREDENTIALS_DIRECTORY", t.TempDir())
	_, err := loadAndCheck(path)
	assert.ErrorContains(t, err, "restart the service")
	assert.ErrorIs(t, err, fs.ErrNotExist)

	err = unreadable("backup.tokens", &fs.PathError{Op: "open", Path: "/etc/spdk-proxy/backup.tokens", Err: syscall.EACCES})
	assert.ErrorContains(t, err, "chgrp spdk-proxy")
	assert.ErrorIs(t, err, fs.ErrPermission)
	assert.NoError(t, unreadable("backup.tokens", nil))
}

func TestConfigWarnings(t *testing.T) {
	const inline = `
listen: ":1"
users: [{name: a, password_hash: "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQxMjM$c3Vtc3Vtc3Vtc3Vtc3Vtc3VtMTIz", roles: [r]}]
roles: {r: {allow: ["*"]}}
`
	path := write(t, inline)
	c, err := LoadConfig(path)
	require.NoError(t, err)
	assert.Empty(t, c.Warnings())

	require.NoError(t, os.Chmod(path, 0o644))
	c, err = LoadConfig(path)
	require.NoError(t, err)
	require.Len(t, c.Warnings(), 1)
	assert.Contains(t, c.Warnings()[0], "chmod o-r")

	c, err = LoadConfig(write(t, inline+"tls: {insecure_plaintext: true}\n"))
	require.NoError(t, err)
	require.Len(t, c.Warnings(), 1)
	assert.Contains(t, c.Warnings()[0], "in the clear")
}

// The example that is installed must work as it stands.
func TestTheDocumentedExample(t *testing.T) {
	const path = "../systemd/spdk-proxy.yaml"
	t.Setenv("CREDENTIALS_DIRECTORY", t.TempDir())
	hash, err := os.ReadFile("testdata/config/hash")
	require.NoError(t, err)
	for _, name := range []string{"secrets_admin.hash"} {
		require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("CREDENTIALS_DIRECTORY"), name), hash, 0o600))
	}
	c, err := loadAndCheck(path)
	require.NoError(t, err)
	assert.Empty(t, c.Warnings())

	c.file, c.dir = "", ""
	want := defaults()
	want.Listen, want.TLS.SelfSignedDir = "0.0.0.0:9009", "/var/lib/spdk-proxy"
	want.Target.Save.Dir, want.Target.Keys.Socket = "/var/lib/spdk-proxy/target", "/run/spdk-proxy-keys.sock"
	want.Target.Freeze.Dir = "/var/lib/spdk-proxy/frozen"
	want.Users = []UserConfig{{Name: "admin", PasswordHashFile: "$CREDENTIALS_DIRECTORY/secrets_admin.hash", Roles: []string{"admin"}}}
	assert.Equal(t, want, *c, "nothing else")
}

// What it has in comments is right, and is every key that there is.
func TestTheDocumentedKeys(t *testing.T) {
	text := commentedOut(t)
	var c Config
	require.NoError(t, decodeStrict([]byte(text), &c))
	want := defaults()
	want.Target.Timeouts.Methods = map[string]Duration{"bdev_lvol_inflate": Duration(slowMethods["bdev_lvol_inflate"])}
	want.Limits.UsersInFlight = map[string]int{"monitoring": 8}
	c.Target.PeerUsers, c.Target.Save.Dir, c.Target.Keys, c.Target.Freeze = nil, "", KeysConfig{}, FreezeConfig{}
	assert.Equal(t, want.Target, c.Target)
	assert.Equal(t, want.Compatibility, c.Compatibility)
	assert.Equal(t, want.Log, c.Log)
	assert.Equal(t, want.Limits, c.Limits)

	var document yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(text), &document))
	said := map[string]bool{}
	keysIn(document.Content[0], "", said)
	for _, key := range keysOf(reflect.TypeFor[Config](), "", map[reflect.Type]bool{}) {
		assert.True(t, said[key], "%s stands there", key)
	}
}

// commentedOut is the installed example with everything in it that is commented out.
func commentedOut(t *testing.T) string {
	text, err := os.ReadFile("../systemd/spdk-proxy.yaml")
	require.NoError(t, err)
	return regexp.MustCompile(`(?m)^( *)# ( *(?:- )?(?:/?[a-z][\w/*-]*):(?: .*)?)$`).ReplaceAllString(string(text), "$1$2")
}

// keysOf are the paths of the keys that a type may have, as keysIn calls them: of
// each type where it first occurs.
func keysOf(t reflect.Type, path string, seen map[reflect.Type]bool) (keys []string) {
	switch t.Kind() {
	case reflect.Slice, reflect.Pointer:
		return keysOf(t.Elem(), path, seen)
	case reflect.Map:
		return keysOf(t.Elem(), path+".*", seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if key := f.Tag.Get("yaml"); key != "" && !seen[t] {
				keys = append(keys, path+"."+key)
				keys = append(keys, keysOf(f.Type, path+"."+key, seen)...)
			}
		}
		seen[t] = true
	}
	return keys
}

// keysIn are those that stand in a document, with * for a member of each name.
func keysIn(n *yaml.Node, path string, keys map[string]bool) {
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			keysIn(item, path, keys)
		}
	}
	if n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			for _, name := range []string{n.Content[i].Value, "*"} {
				keys[path+"."+name] = true
				keysIn(n.Content[i+1], path+"."+name, keys)
			}
		}
	}
}

func write(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
