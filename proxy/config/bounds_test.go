package config

import (
	"crypto/tls"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

const leastConfig = `
listen: ":1"
users: [{name: a, password_hash: "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQxMjM$c3Vtc3Vtc3Vtc3Vtc3Vtc3VtMTIz", roles: [r]}]
roles: {r: {allow: ["*"]}}
`

// loadWith loads a configuration with additional keys, and derives values from it.
func loadWith(t *testing.T, keys string) (*Config, error) {
	t.Helper()
	c, err := Load(writeFile(t, leastConfig+keys))
	if err == nil {
		err = values(c)
	}
	return c, err
}

// Each number accepts its minimum and maximum, and nothing outside that range.
func TestNumbersOutOfBoundsAreRejected(t *testing.T) {
	for key, bounds := range map[string][2]int{
		"limits: {user_in_flight: %d}": {1, 65536}, "limits: {connections: %d}": {1, 65536}, "limits: {connections_per_source: %d}": {1, 65536},
		"limits: {user_calls_per_second: %d}": {0, 1000000}, "limits: {users_in_flight: {a: %d}}": {1, 65536}, "limits: {users_calls_per_second: {a: %d}}": {1, 1000000},
		"limits: {request_kib: %d}": {1, 256}, "limits: {auth_failures_per_minute: %d}": {1, 10000},
		"target: {connections: %d}": {1, 32}, "target: {max_in_flight: %d}": {1, 65536}, "target: {save: {keep: %d}}": {1, 1000},
		"metrics: {volumes: %d}": {0, 20000}, "log: {calls: {max_mib: %d}}": {1, 1 << 20}, "log: {calls: {keep: %d}}": {1, 10000},
		"tenants: {t: {quota: {gib: %d}}}": {1, 1 << 30}, "tenants: {t: {quota: {volumes: %d}}}": {1, 1 << 30}, "tenants: {t: {quota: {subsystems: %d}}}": {1, 1 << 30},
		"tenants: {t: {quota: {hosts: %d}}}": {1, 1 << 30}, "tenants: {t: {quota: {listeners: %d}}}": {1, 1 << 30}, "tenants: {t: {quota: {keys: %d}}}": {1, 4096},
	} {
		for n, ok := range map[int]bool{bounds[0] - 1: false, bounds[0]: true, bounds[1]: true, bounds[1] + 1: false} {
			_, err := loadWith(t, fmt.Sprintf(key, n))
			assert.Equal(t, ok, err == nil, "%s, %d: %v", key, n, err)
		}
	}
}

// Every invalid combination of keys that require or exclude each other is rejected.
func TestConflictingKeysAreRejected(t *testing.T) {
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	long := func(n int) string { return "/" + strings.Repeat("x", n-1) }
	names := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, "b"+strconv.Itoa(i))
		}
		return strings.Join(list, ", ")
	}
	for keys, says := range map[string]string{
		"tls: {insecure_plaintext: true}":                                             "",
		"tls: {insecure_plaintext: true, cert_file: c, key_file: k}":                  "insecure_plaintext",
		"tls: {insecure_plaintext: true, key_file: k}":                                "insecure_plaintext",
		"tls: {insecure_plaintext: true, self_signed_dir: d}":                         "insecure_plaintext",
		"tls: {insecure_plaintext: true, min_version: '1.3'}":                         "no effect",
		"tls: {insecure_plaintext: true, cipher_suites: []}":                          "no effect",
		"tls: {insecure_plaintext: true, client_ca_file: c}":                          "need TLS",
		"tls: {cert_file: c}":                                                         "both cert_file and key_file",
		"tls: {key_file: k}":                                                          "both cert_file and key_file",
		"tls: {cert_file: c, key_file: k}":                                            "",
		"tls: {cert_file: c, key_file: k, self_signed_dir: d}":                        "either cert_file and key_file, or self_signed_dir",
		"tls: {self_signed_dir: d}":                                                   "",
		"tls: {min_version: '1.1'}":                                                   "min_version must be",
		"tls: {min_version: '1.2'}":                                                   "",
		"tls: {min_version: '1.3'}":                                                   "",
		"tls: {min_version: '1.3', cipher_suites: []}":                                "only for TLS 1.2",
		"tls: {cipher_suites: []}":                                                    "cipher_suites is empty",
		"tls: {cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]}":               "",
		"tls: {cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]}":                            "not a secure TLS 1.2 cipher suite",
		"tls: {cipher_suites: [TLS_AES_128_GCM_SHA256]}":                              "not a secure TLS 1.2 cipher suite",
		"tls: {client_auth: required}":                                                "client_auth needs",
		"tls: {client_crl_file: c}":                                                   "client_crl_file needs",
		"tls: {client_ca_file: c, client_auth: some}":                                 "optional or required",
		"tls: {client_ca_file: c, client_auth: optional}":                             "",
		"tls: {client_ca_file: c, client_auth: required, client_crl_file: d}":         "",
		"load_balancers: {client_address: proxy_protocol}":                            "addresses is missing",
		"load_balancers: {addresses: [192.0.2.1]}":                                    "client_address must be",
		"load_balancers: {addresses: [192.0.2.1], client_address: x}":                 "client_address must be",
		"load_balancers: {addresses: [192.0.2.1], client_address: proxy_protocol}":    "",
		"load_balancers: {addresses: [192.0.2.1], client_address: x_forwarded_for}":   "",
		"load_balancers: {addresses: [x], client_address: x_forwarded_for}":           "neither an address",
		"load_balancers: {addresses: [0.0.0.0/1], client_address: x_forwarded_for}":   "",
		"load_balancers: {addresses: [0.0.0.0/0], client_address: x_forwarded_for}":   "any address",
		"load_balancers: {addresses: ['fe80::1%x'], client_address: proxy_protocol}":  "neither an address",
		"load_balancers: {addresses: [192.0.2.1/24], client_address: proxy_protocol}": "within a network",
		"console: {idle: 59s}":                                                        "at least 1m",
		"console: {idle: 1m}":                                                         "",
		"console: {idle: 1h, lifetime: 1h}":                                           "",
		"console: {idle: 1h1s, lifetime: 1h}":                                         "must not be longer",
		"console: {lifetime: 168h}":                                                   "",
		"console: {lifetime: 168h1s}":                                                 "at most 168h",
		"target: {keys: {dir: " + in("d") + "}}":                                      "",
		"target: {keys: {socket: " + in("s") + "}}":                                   "",
		"target: {keys: {dir: " + in("d") + ", socket: " + in("s") + "}}":             "either dir or socket",
		"target: {keys: {dir: " + in("d/.") + "}, save: {dir: " + in("d") + "}}":      "different directories",
		"target: {keys: {dir: " + in("e") + "}, save: {dir: " + in("d") + "}}":        "",
		"target: {peer_users: [root, '65533', '65535']}":                              "",
		"target: {peer_users: ['65534']}":                                             "as a dedicated user",
		"target: {peer_users: ['4294967296']}":                                        "there is no user",
		"limits: {users_in_flight: {b: 1}}":                                           "there is no user b",
		"metrics: {listen: '127.0.0.1:9010'}":                                         "",
		"metrics: {listen: '[::1]:9010'}":                                             "",
		"metrics: {listen: '192.0.2.1:9010'}":                                         "loopback",
		"metrics: {listen: 'localhost:9010'}":                                         "loopback",
		"metrics: {latency_histograms: [" + names(10) + "]}":                          "",
		"metrics: {latency_histograms: [" + names(11) + "]}":                          "at most 10",
		"metrics: {latency_histograms: [" + strings.Repeat("x", 255) + "]}":           "",
		"metrics: {latency_histograms: [" + strings.Repeat("x", 256) + "]}":           "not the name of a bdev",
		"log: {calls: {to: log}}":                                                     "",
		"log: {calls: {to: journal}}":                                                 "",
		"log: {calls: {to: nowhere}}":                                                 "log, journal or file",
		"log: {calls: {to: file}}":                                                    "path is missing",
		"log: {calls: {to: file, path: /x/y}}":                                        "",
		"log: {calls: {to: journal, path: /x/y}}":                                     "is not file",
		"log: {format: text}":                                                         "",
		"log: {format: xml}":                                                          "json or text",
		"listen_unix: {path: " + long(107) + "}":                                      "",
		"listen_unix: {path: " + long(108) + "}":                                      "longer than 107 bytes",
		"listen_unix: {path: /x, mode: '0777'}":                                       "",
		"listen_unix: {path: /x, mode: '0020'}":                                       "",
		"listen_unix: {path: /x, mode: '0002'}":                                       "",
		"listen_unix: {path: /x, mode: '1660'}":                                       "octal permissions",
		"listen_unix: {path: /x, mode: '1000'}":                                       "octal permissions",
		"listen_unix: {path: /x, mode: '0555'}":                                       "octal permissions",
		"listen_unix: {path: /x, mode: '0668'}":                                       "octal permissions",
		"listen_unix: {path: /x, owner: '4294967296'}":                                "there is no user",
		"listen_unix: {path: /x, group: '4294967296'}":                                "there is no group",
		"listen_unix: {path: /x, owner: '4294967295', group: '4294967295'}":           "",
		"listen_unix: {mode: '0660'}":                                                 "",
		"listen_unix: {mode: '0600'}":                                                 "has no path",
		"target: {timeouts: {default: 1ns}}":                                          "",
		"target: {timeouts: {default: 0s}}":                                           "a duration with its unit",
		"target: {timeouts: {default: -1s}}":                                          "a duration with its unit",
		"target: {timeouts: {default: 30}}":                                           "a duration with its unit",
	} {
		_, err := loadWith(t, keys)
		if says == "" {
			// Missing certificate files are not errors here, because package cert reads them later.
			if err != nil && !strings.Contains(err.Error(), "no such file") {
				assert.NoError(t, err, keys)
			}
			continue
		}
		require.ErrorContains(t, err, says, keys)
	}
}

func TestTLSProtocolIsConfigurable(t *testing.T) {
	version, suites, err := (&TLS{}).Protocol()
	require.NoError(t, err)
	assert.Equal(t, uint16(tls.VersionTLS12), version)
	assert.Nil(t, suites, "Go chooses")
	version, suites, err = (&TLS{CipherSuites: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}}).Protocol()
	require.NoError(t, err)
	assert.Equal(t, uint16(tls.VersionTLS12), version)
	assert.Equal(t, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}, suites)
	version, _, err = (&TLS{MinVersion: "1.3"}).Protocol()
	require.NoError(t, err)
	assert.Equal(t, uint16(tls.VersionTLS13), version)
}

func TestLocalUserAndGroupNamesAreResolved(t *testing.T) {
	me, err := user.Current()
	require.NoError(t, err)
	uid, err := uidOf(me.Username)
	require.NoError(t, err)
	assert.Equal(t, me.Uid, strconv.Itoa(int(uid)))
	for _, name := range []string{"4294967296", "-1", "no such user", ""} {
		uid, err := uidOf(name)
		require.Error(t, err, name)
		assert.Zero(t, uid)
		gid, err := gidOf(name)
		require.Error(t, err, name)
		assert.Zero(t, gid)
	}
	l := Local{}
	_, _, err = l.ids()
	require.ErrorContains(t, err, "neither users nor groups")
	uids, gids, err := (&Local{Users: []string{"7"}}).ids()
	require.NoError(t, err)
	assert.Equal(t, []uint32{7}, uids)
	assert.Nil(t, gids)
	uids, gids, err = (&Local{Groups: []string{"8"}}).ids()
	require.NoError(t, err)
	assert.Nil(t, uids)
	assert.Equal(t, []uint32{8}, gids)
}

// Slow methods have longer default timeouts, which the configuration can override.
func TestSlowMethodsHaveLongTimeouts(t *testing.T) {
	schema := rpcschema.Default()
	timeouts, err := Timeouts{Default: Duration(30 * time.Second)}.ByMethod(schema)
	require.NoError(t, err)
	for method, want := range map[string]time.Duration{
		"bdev_lvol_create_lvstore": 10 * time.Minute, "bdev_lvol_delete_lvstore": 10 * time.Minute, "bdev_lvol_grow_lvstore": 10 * time.Minute,
		"bdev_lvol_delete": 10 * time.Minute, "bdev_lvol_resize": 10 * time.Minute, "bdev_lvol_inflate": time.Hour, "bdev_lvol_decouple_parent": time.Hour,
		"framework_start_init": 10 * time.Minute, "framework_wait_init": 10 * time.Minute, "spdkgate_lvol_changes": 10 * time.Minute,
	} {
		assert.Equal(t, want, timeouts[method], method)
	}
	assert.Len(t, timeouts, 10)
	timeouts, err = Timeouts{Default: Duration(2 * time.Hour), Methods: map[string]Duration{"bdev_lvol_delete": 1}}.ByMethod(schema)
	require.NoError(t, err)
	assert.Equal(t, time.Duration(1), timeouts["bdev_lvol_delete"])
	assert.Equal(t, 2*time.Hour, timeouts["bdev_lvol_inflate"])
	_, err = Timeouts{Methods: map[string]Duration{"bdev_lvol_delte": 1}}.ByMethod(schema)
	require.ErrorContains(t, err, "bdev_lvol_delte")
	var d Duration
	require.Error(t, d.UnmarshalYAML(&yaml.Node{Value: "x"}))
	assert.Zero(t, d)
}

func TestQuotasAreParsed(t *testing.T) {
	q, err := Quota{}.quota()
	require.NoError(t, err)
	assert.Equal(t, tenancy.Quota{Volumes: 2048, Subsystems: 512, Hosts: 1024, Listeners: 1024, Keys: 256}, q, "all but bytes have a bound")
	q, err = Quota{GiB: new(3), Volumes: new(4), Subsystems: new(5), Hosts: new(6), Listeners: new(7), Keys: new(8)}.quota()
	require.NoError(t, err)
	assert.Equal(t, tenancy.Quota{Bytes: 3 << 30, Volumes: 4, Subsystems: 5, Hosts: 6, Listeners: 7, Keys: 8}, q)
	_, err = Quota{Hosts: new(0)}.quota()
	require.EqualError(t, err, "quota.hosts must be 1 to 1073741824; remove the key to use the default (1024)")
	q, err = Quota{GiB: new(-1)}.quota()
	require.ErrorContains(t, err, "quota.gib")
	assert.Zero(t, q.Bytes)
}

func TestLearningModeCanBeSetGloballyOrPerUser(t *testing.T) {
	for keys, want := range map[[2]bool]bool{{false, false}: false, {true, false}: true, {false, true}: true, {true, true}: true} {
		c := Config{Learning: keys[0], Users: []User{{Name: "a", Roles: []string{"r"}, Learning: keys[1]}}}
		assert.Equal(t, want, c.PolicyUsers()["a"].Learning, keys)
		assert.Equal(t, []string{"r"}, c.PolicyUsers()["a"].Roles)
		for level, warnings := range map[string]int{"info": 1, "warn": 1, "error": 2} {
			c, err := Load(writeFile(t, strings.Replace(leastConfig, "roles: [r]", fmt.Sprintf("roles: [r], learning: %v", keys[1]), 1)+fmt.Sprintf("learning: %v\nlog: {level: %s}\n", keys[0], level)))
			require.NoError(t, err)
			if !want {
				warnings = 0
			}
			assert.Len(t, c.Warnings(), warnings, "%v, %s", keys, level)
		}
	}
}

// If every user of the host can read a file of secrets, there is a warning.
func TestReadableSecretsCauseAWarning(t *testing.T) {
	const hash = "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQxMjM$c3Vtc3Vtc3Vtc3Vtc3Vtc3VtMTIz"
	key := writeFile(t, "key")
	require.NoError(t, os.Chmod(key, 0o644))
	for text, warned := range map[string]bool{
		leastConfig: true,
		strings.Replace(leastConfig, `password_hash: "`+hash+`"`, `password_hashes: ["`+hash+`"]`, 1):                true,
		strings.Replace(leastConfig, `password_hash: "`+hash+`"`, `password_hash_file: `+writeFile(t, hash+"\n"), 1): false,
	} {
		path := writeFile(t, text)
		for mode, warned := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: warned} {
			require.NoError(t, os.Chmod(path, mode))
			c, err := Load(path)
			require.NoError(t, err, text)
			assert.Equal(t, warned, strings.Contains(strings.Join(c.Warnings(), "\n"), "chmod o-r"), "mode %o: %v", mode, c.Warnings())
		}
	}
}

func TestLoadBalancersAreCompared(t *testing.T) {
	a := LoadBalancers{Addresses: []string{"192.0.2.1"}, ClientAddress: ProxyProtocol}
	assert.True(t, a.Equal(a))
	assert.False(t, a.Equal(LoadBalancers{Addresses: a.Addresses}))
	assert.False(t, a.Equal(LoadBalancers{Addresses: []string{"192.0.2.2"}, ClientAddress: ProxyProtocol}))
}
