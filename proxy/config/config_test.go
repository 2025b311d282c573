package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

func TestAllMistakesAreReportedWithFileAndLine(t *testing.T) {
	path := writeFile(t, "listn: x\nusers: 7\nlog: {level: loud}\n")
	_, err := Load(path)
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 3)
	for i, want := range []string{"line 1: listn", "line 2: users", "line 3: log.level"} {
		assert.Contains(t, lines[i], path+": "+want)
	}
}

func TestSlowMethodsAreInTheSchema(t *testing.T) {
	for name := range slowMethods {
		_, ok := rpcschema.Default().Method(name)
		assert.True(t, ok, name)
	}
}

func TestPathsAreRelativeToTheFile(t *testing.T) {
	c, err := Load("testdata/full.good.yml")
	require.NoError(t, err)
	assert.Equal(t, "testdata/state", c.TLS.SelfSignedDir)
	c, err = Load("testdata/least.good.yml")
	require.NoError(t, err)
	assert.Equal(t, "/var/tmp/spdk.sock", c.Target.Socket)
	assert.False(t, c.TLS.InsecurePlaintext, "TLS is the default")
}

// values derives from a configuration all values that the stages of the proxy need.
func values(c *Config) error {
	_, users := c.AuthUsers()
	_, issuers := c.AuthIssuers()
	_, tenants := c.TenancyTenants()
	_, timeouts := c.Target.Timeouts.ByMethod(rpcschema.Default())
	_, peers := c.PeerUIDs()
	return errors.Join(users, issuers, tenants, timeouts, peers)
}

func TestValidValuesAreAccepted(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.good.yml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		c, err := Load(path)
		require.NoError(t, err, path)
		require.NoError(t, values(c), path)
	}
}

// The first line of each *.bad.yml file contains the expected error. Package proxy tests the files
// that config.Load accepts but a stage rejects.
func TestInvalidValuesAreRejected(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	paths, err := filepath.Glob("testdata/*.bad.yml")
	require.NoError(t, err)
	refused := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		first, _, _ := strings.Cut(string(text), "\n")
		c, err := Load(path)
		if err == nil {
			err = values(c)
		}
		if err == nil {
			continue
		}
		refused++
		assert.ErrorContains(t, err, strings.TrimPrefix(first, "# says: "), path)
		assert.NotContains(t, err.Error(), "hunter2", "values may be secret")
	}
	assert.Greater(t, refused, len(paths)*2/3)
}

func TestMissingConfigSaysWhatToDo(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"))
	require.ErrorContains(t, err, "there is no configuration at")
	require.ErrorContains(t, err, "--config")
}

// For two common mistakes, the error states the remedy.
func TestErrorsForUnreadableFilesSayWhatToDo(t *testing.T) {
	const path = "testdata/credentials_not_set.bad.yml"
	t.Setenv("CREDENTIALS_DIRECTORY", t.TempDir())
	_, err := Load(path)
	assert.ErrorContains(t, err, "restart the service")
	assert.ErrorIs(t, err, fs.ErrNotExist)

	err = unreadable("backup.tokens", &fs.PathError{Op: "open", Path: "/etc/spdk-proxy/backup.tokens", Err: syscall.EACCES})
	assert.ErrorContains(t, err, "chgrp spdk-proxy")
	assert.ErrorIs(t, err, fs.ErrPermission)
	assert.NoError(t, unreadable("backup.tokens", nil))
}

func TestRiskySettingsCauseWarnings(t *testing.T) {
	const inline = `
listen: ":1"
users: [{name: a, password_hash: "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQxMjM$c3Vtc3Vtc3Vtc3Vtc3Vtc3VtMTIz", roles: [r]}]
roles: {r: {allow: ["*"]}}
`
	path := writeFile(t, inline)
	c, err := Load(path)
	require.NoError(t, err)
	assert.Empty(t, c.Warnings())

	require.NoError(t, os.Chmod(path, 0o644))
	c, err = Load(path)
	require.NoError(t, err)
	require.Len(t, c.Warnings(), 1)
	assert.Contains(t, c.Warnings()[0], "chmod o-r")

	c, err = Load(writeFile(t, inline+"tls: {insecure_plaintext: true}\n"))
	require.NoError(t, err)
	require.Len(t, c.Warnings(), 1)
	assert.Contains(t, c.Warnings()[0], "unencrypted")
}

// The installed example configuration is valid, and keys in its comments have no effect.
func TestInstalledExampleIsValid(t *testing.T) {
	const path = "../../systemd/spdk-proxy.yaml"
	t.Setenv("CREDENTIALS_DIRECTORY", t.TempDir())
	hash, err := os.ReadFile("testdata/hash")
	require.NoError(t, err)
	for _, name := range []string{"secrets_admin.hash"} {
		require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("CREDENTIALS_DIRECTORY"), name), hash, 0o600))
	}
	c, err := Load(path)
	require.NoError(t, err)
	assert.Empty(t, c.Warnings())

	c.file, c.dir = "", ""
	want := Default()
	want.Listen, want.TLS.SelfSignedDir = "0.0.0.0:9009", "/var/lib/spdk-proxy"
	want.Target.Save.Dir, want.Target.Keys.Socket = "/var/lib/spdk-proxy/target", "/run/spdk-proxy-keys.sock"
	want.Target.Freeze.Dir = "/var/lib/spdk-proxy/frozen"
	want.Users = []User{{Name: "admin", PasswordHashFile: "$CREDENTIALS_DIRECTORY/secrets_admin.hash", Roles: []string{"admin"}}}
	assert.Equal(t, want, *c, "no other key is set")
}

// With all keys in its comments uncommented, the installed example is valid and contains every key.
func TestInstalledExampleDocumentsEveryKey(t *testing.T) {
	text := commentedOut(t)
	var c Config
	require.NoError(t, DecodeStrict([]byte(text), &c))
	want := Default()
	want.Target.Timeouts.Methods = map[string]Duration{"bdev_lvol_inflate": Duration(slowMethods["bdev_lvol_inflate"])}
	want.Console.Grafana = "https://grafana.example/d/spdk?var-volume={volume}"
	want.Limits.UsersInFlight = map[string]int{"monitoring": 8}
	want.Limits.UsersCallsPerSecond = map[string]int{"monitoring": 20}
	c.Target.PeerUsers, c.Target.Save.Dir, c.Target.Keys, c.Target.Freeze, c.Log.Calls.Path = nil, "", Keys{}, Freeze{}, ""
	assert.Equal(t, want.Target, c.Target)
	assert.Equal(t, want.Compatibility, c.Compatibility)
	assert.Equal(t, want.Log, c.Log)
	assert.Equal(t, want.Console, c.Console)
	assert.Equal(t, want.Limits, c.Limits)

	var document yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(text), &document))
	said := map[string]bool{}
	keysIn(document.Content[0], "", said)
	for _, key := range keysOf(reflect.TypeFor[Config](), "", map[reflect.Type]bool{}) {
		assert.True(t, said[key], "%s stands there", key)
	}
}

// commentedOut returns the installed example with all keys in its comments uncommented.
func commentedOut(t *testing.T) string {
	text, err := os.ReadFile("../../systemd/spdk-proxy.yaml")
	require.NoError(t, err)
	return regexp.MustCompile(`(?m)^( *)# ( *(?:- )?(?:/?[a-z][\w/*-]*):(?: .*)?)$`).ReplaceAllString(string(text), "$1$2")
}

// keysOf returns the paths of a type's keys in the format of keysIn. It visits each type only once.
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

// keysIn adds the paths of a document's keys to keys. Names that the user chooses are replaced by
// *.
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

func writeFile(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// The conditional rules in the comments of the installed example are valid.
func TestInstalledExampleConditionsAreValid(t *testing.T) {
	var c Config
	require.NoError(t, DecodeStrict([]byte(commentedOut(t)), &c))
	_, err := policy.New(c.Roles, c.PolicyUsers(), rpcschema.Default())
	require.NoError(t, err)
	require.Len(t, c.Roles["team-a"].Allow, 1)
	assert.Len(t, c.Roles["team-a"].Allow[0].Where, 3)
	assert.Equal(t, []string{"read-only"}, c.Roles["operator"].Extends)
}

func TestLearningCausesAWarning(t *testing.T) {
	const hash = `$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQxMjM$c3Vtc3Vtc3Vtc3Vtc3Vtc3VtMTIz`
	for more, says := range map[string]string{
		"learning: true":      "LEARNING is on: calls of every user",
		"log: {level: error}": "log.level hides what is learned",
		"":                    "LEARNING is on for a: calls that",
	} {
		c, err := Load(writeFile(t, "listen: \":1\"\n"+more+"\nusers: [{name: a, password_hash: '"+hash+"', learning: true}, {name: b, password_hash: '"+hash+"', roles: [admin]}]\n"))
		require.NoError(t, err)
		assert.Contains(t, strings.Join(c.Warnings(), "\n"), says)
	}
}

// The tenant in the comments of the installed example is valid.
func TestInstalledExampleTenantIsValid(t *testing.T) {
	var file Config
	require.NoError(t, DecodeStrict([]byte(commentedOut(t)), &file))
	tenants := file.Tenants
	require.Len(t, tenants, 1)
	c := Default()
	c.Tenants = tenants
	made, err := c.TenancyTenants()
	require.NoError(t, err)
	_, err = tenancy.New(made, c.TenantsOfUsers(), rpcschema.Default(), nil)
	require.NoError(t, err)
	assert.Equal(t, 500, *tenants["team-a"].Quota.GiB)
}

func TestUserWithoutCredentialsCausesAWarning(t *testing.T) {
	c, err := Load("testdata/user_without_credentials.good.yml")
	require.NoError(t, err)
	require.Len(t, c.Warnings(), 1)
	assert.Contains(t, c.Warnings()[0], "user admin has no credentials")
}

// If the service has a state directory, there is a freeze journal even if target.freeze.dir is not
// set.
func TestFreezeJournalDefaultsToTheStateDirectory(t *testing.T) {
	for state, want := range map[string]string{"": "", "/var/lib/a": "/var/lib/a/frozen", "/var/lib/a:/var/lib/b": "/var/lib/a/frozen"} {
		t.Setenv("STATE_DIRECTORY", state)
		c := Default()
		require.NoError(t, c.validateFreeze())
		assert.Equal(t, want, c.Target.Freeze.Dir)
		c = Default()
		c.Target.Freeze.Dir = "/own"
		require.NoError(t, c.validateFreeze())
		assert.Equal(t, "/own", c.Target.Freeze.Dir)
		c = Default()
		c.Target.SnapshotsInUse = SnapshotsFreeze
		assert.Equal(t, want == "", c.validateFreeze() != nil)
	}
}

func TestFreezingRequiresAJournal(t *testing.T) {
	c := Default()
	require.NoError(t, c.validateFreeze())
	c.Target.SnapshotsInUse = SnapshotsFreeze
	assert.ErrorContains(t, c.validateFreeze(), "target.freeze.dir")
	c.Target.SnapshotsInUse = "sometimes"
	assert.ErrorContains(t, c.validateFreeze(), "refuse, freeze, allow")
}
