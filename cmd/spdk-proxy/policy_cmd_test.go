package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// policyConfig names secret files that do not exist, because these commands must not read them.
const policyConfig = `
listen: "127.0.0.1:0"
users:
  - {name: admin, password_hash_file: secrets/a, roles: [admin]}
  - {name: reader, password_hash_file: secrets/b, roles: [read-only]}
  - {name: team, password_hash_file: secrets/c, roles: [csi-controller, small], tenant: a}
  - {name: small, password_hash_file: secrets/d, roles: [small]}
  - {name: new, password_hash_file: secrets/e, learning: true}
  - {name: newteam, password_hash_file: secrets/f, learning: true, tenant: a}
roles:
  small:
    allow: [{method: bdev_lvol_create, where: {/size_in_mib: {maximum: 1024}}}]
    deny: [{method: bdev_lvol_create, where: {/lvs_name: {enum: [system]}}}, bdev_lvol_delete]
tenants:
  a: {lvstores: [lvs-a], volume_nqn_prefix: "nqn.2024-01.com.example:", nqn_prefixes: ["nqn.2024-01.com.example.a:"], addresses: ["192.0.2.1:4420"], hosts: ["nqn.2024-01.com.example:h*"]}
`

func writePolicy(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "spdk-proxy.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestPolicyExplainNamesTheDecidingRule(t *testing.T) {
	path := writePolicy(t, policyConfig)
	for call, c := range map[string]struct {
		code int
		says []string
	}{
		"--as admin spdk_kill_instance": {0, []string{"admin may call spdk_kill_instance.", "decided by   role admin: allow *"}},
		"--as reader bdev_get_bdevs":    {0, []string{"result       without secrets"}},
		"--as reader bdev_lvol_delete":  {1, []string{"reader may not call bdev_lvol_delete.", "decided by   no rule allows it"}},
		"--as small bdev_lvol_create":   {1, []string{"Whether small may call bdev_lvol_create depends on the parameters: give them.\n", "other rule   role small: allow bdev_lvol_create where /size_in_mib is at most 1024: depends on the parameters"}},
		"--as small bdev_lvol_create lvol_name=v lvs_name=l size_in_mib=1024": {0, []string{
			"small may call bdev_lvol_create with these parameters.", "decided by   role small: allow bdev_lvol_create where /size_in_mib is at most 1024",
			"other rule   role small: deny bdev_lvol_create where /lvs_name is system: does not apply: the call does not meet the condition /lvs_name is system",
		}},
		"--as small bdev_lvol_create lvol_name=v lvs_name=l size_in_mib=1025": {1, []string{"small may not call bdev_lvol_create with these parameters.", "no rule allows it with these parameters", "does not meet the condition /size_in_mib is at most 1024"}},
		"--as small bdev_lvol_create lvol_name=v lvs_name=system size_in_mib=1": {1, []string{
			"decided by   role small: deny bdev_lvol_create where /lvs_name is system", "where /size_in_mib is at most 1024: allows it, but a deny takes precedence",
		}},
		"--as small bdev_lvol_create lvol_name=v lvs_name=l size=1073741824 --spdk-version v26.05": {0, []string{"translated   size to size_in_mib for v26.05"}},
		"--as small bdev_lvol_create lvol_name=v lvs_name=l size=1073741825 --spdk-version v24.01": {1, []string{"does not meet the condition /size_in_mib is at most 1024"}},
		"--as small bdev_lvol_create lvol_name=v size_in_mib=1":                                    {1, []string{"small may not make this call: its parameters are not valid for bdev_lvol_create.\n", "decided by   the schema", "invalid "}},
		"--as team nvmf_create_transport":                                                          {1, []string{"tenants may not call it", "decided by   tenant a", "tenant       a: refused: it "}},
		"--as team bdev_get_bdevs":                                                                 {0, []string{"tenant       a: allowed: its result has only the tenant's objects"}},
		"--as team nvmf_subsystem_add_host nqn=nqn.2024-01.com.example.a:v host=nqn.2024-01.com.example:x": {1, []string{
			"team may not call nvmf_subsystem_add_host with these parameters: tenant a may not use one of them.\n", "decided by   tenant a\n",
			"tenant       a: refused: nvmf_subsystem_add_host: host is not a host of this tenant: its hosts are nqn.2024-01.com.example:h*\n",
		}},
		"--as team nvmf_subsystem_add_host nqn=nqn.2024-01.com.example.a:v host=nqn.2024-01.com.example:h1": {0, []string{
			"team may call nvmf_subsystem_add_host with these parameters.\n", "a: allowed for the tenant's objects: their owner and the quota are checked only when the call is made\n",
		}},
		"--as team nvmf_subsystem_add_listener nqn=nqn.2024-01.com.example.a:v listen_address.trtype=tcp listen_address.traddr=192.0.2.1 listen_address.trsvcid=4421": {1, []string{"is not an address of this tenant: its addresses are 192.0.2.1:4420"}},
		"--as team nvmf_create_subsystem nqn=nqn.2024-01.com.example.b:v":                                                                                             {1, []string{"nqn is not a name that this tenant may choose"}},
		"--as team nvmf_create_subsystem nqn=nqn.2024-01.com.example:7d9c0a8e-5b1f-4c02-9a57-000000000001":                                                            {0, nil},
		"--as team bdev_lvol_delete":            {1, []string{"decided by   role small: deny bdev_lvol_delete", "role csi-controller: allow bdev_lvol_delete: allows it, but a deny takes precedence"}},
		"--as new bdev_lvol_delete":             {0, []string{"LEARNING: new may call bdev_lvol_delete only while learning is on.\n"}},
		"--as newteam nvmf_create_transport":    {1, []string{"newteam may not call nvmf_create_transport: tenants may not call it.\n", "decided by   tenant a"}},
		"--as new bdev_lvol_create lvol_name=v": {1, []string{"new may not make this call: its parameters are not valid for bdev_lvol_create.\n", "decided by   the schema"}},
		"--as nobody bdev_lvol_delete":          {exitUsage, nil},
		"--as small bdev_lvol_crate":            {exitUsage, nil},
		"--as small bdev_lvol_create siz=1":     {exitUsage, nil},
		"--as small":                            {exitUsage, nil},
		"bdev_lvol_create":                      {1, nil},
	} {
		t.Run(call, func(t *testing.T) {
			o := run(t, "", append([]string{"policy", "explain", "--config", path}, strings.Fields(call)...)...)
			assert.Equal(t, c.code, o.code, "%s%s", o.stdout, o.stderr)
			for _, says := range c.says {
				assert.Contains(t, o.stdout, says)
			}
		})
	}
	o := run(t, "", "policy", "explain", "--config", filepath.Join(t.TempDir(), "none"), "--as", "a", "bdev_get_bdevs")
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "there is no configuration at")
}

func TestPolicyExplainMatchesTheManual(t *testing.T) {
	text, err := os.ReadFile("../../docs/authorization.md")
	require.NoError(t, err)
	block := func(before, begin string) string {
		_, rest, ok := strings.Cut(string(text), before)
		require.True(t, ok)
		_, rest, ok = strings.Cut(rest, begin)
		require.True(t, ok)
		inside, _, _ := strings.Cut(rest, "```")
		return inside
	}
	path := writePolicy(t, block("## Custom roles", "```yaml\n"))
	shown := block("## Explain a decision", "```console\n")
	command, want, _ := strings.Cut(shown, "\n")
	args := strings.Fields(strings.Replace(command, "spdk-proxy.yaml", path, 1))[2:]
	o := run(t, "", args...)
	assert.Equal(t, 1, o.code)
	assert.Equal(t, want, o.stdout)

	table := block("## Test a policy", "```yaml\n")
	o = run(t, table, "policy", "test", "--config", path, "-")
	assert.Equal(t, outcome{"11 of 11 decisions are as expected\n", "", 0}, o)
}

func TestPolicyTestListsUnexpectedDecisions(t *testing.T) {
	path := writePolicy(t, policyConfig)
	o := run(t, "- {who: reader, call: bdev_get_bdevs, expect: allow}\n- {who: reader, call: bdev_lvol_delete, expect: allow}\n", "policy", "test", "--config", path, "-")
	assert.Equal(t, 1, o.code)
	assert.Contains(t, o.stdout, "LINE  WHO     CALL              EXPECTED  ACTUAL\n2     reader  bdev_lvol_delete  allow     deny: no rule allows it\n")
	assert.Contains(t, o.stderr, "1 of 2 decisions are not as expected")
	o = run(t, "- {who: x, call: bdev_get_bdevs, expect: allow}", "policy", "test", "--config", path, "-")
	assert.Equal(t, 1, o.code)
	assert.Contains(t, o.stderr, `there is no user "x"`)
	assert.Equal(t, exitUsage, run(t, "", "policy", "test", "--config", path).code)
	assert.Equal(t, exitUsage, run(t, "", "policy", "test", "--config", path, "/none").code)
}

func TestPolicyShowListsMethodsAndRules(t *testing.T) {
	path := writePolicy(t, policyConfig)
	o := run(t, "", "policy", "show", "--config", path, "--as", "small")
	assert.Equal(t, 0, o.code)
	assert.Equal(t, []string{
		"bdev_lvol_create it depends on the parameters",
		"role small: deny bdev_lvol_create where /lvs_name is system",
		"role small: allow bdev_lvol_create where /size_in_mib is at most 1024",
	}, lines(o.stdout))
	o = run(t, "", "policy", "show", "--config", path, "--as", "team")
	assert.Contains(t, o.stdout, "bdev_lvol_resize ")
	assert.NotContains(t, o.stdout, "nvmf_create_transport")
	assert.NotContains(t, o.stdout, "bdev_lvol_delete ")
	assert.Contains(t, o.stdout, "more methods, which tenants may not call (team belongs to tenant a).")
	assert.Contains(t, run(t, "", "policy", "show", "--config", path, "--as", "new").stdout, "LEARNING: allowed for now, although no rule allows it")
	assert.Equal(t, exitUsage, run(t, "", "policy", "show", "--config", path, "--as", "tema").code)
}

// lines splits text into lines, and removes the spaces that align columns.
func lines(text string) (list []string) {
	for line := range strings.Lines(text) {
		list = append(list, strings.Join(strings.Fields(line), " "))
	}
	return list
}

func TestPolicyRolesListsMethods(t *testing.T) {
	o := run(t, "", "policy", "roles")
	assert.Equal(t, 0, o.code)
	require.Len(t, lines(o.stdout), 5)
	assert.Contains(t, lines(o.stdout)[0], "admin all methods")
	assert.Contains(t, lines(run(t, "", "policy", "roles", "metrics").stdout), "bdev_get_iostat where /reset_mode is none or absent")
	assert.NotContains(t, run(t, "", "policy", "roles", "read-only").stdout, "_delete")
	assert.Equal(t, exitUsage, run(t, "", "policy", "roles", "operator").code)
}

func TestPolicyLearnedReadsTheAuditLog(t *testing.T) {
	const log = `{"level":"INFO","msg":"call","user":"csi","method":"bdev_lvol_create","decision":"learn","status":200}
{"level":"INFO","msg":"call","user":"csi","method":"spdk_get_version","decision":"allow","status":200}
{"level":"WARN","msg":"call","user":"csi","method":"spdk_kill_instance","decision":"deny","status":403}
{"level":"WARN","msg":"call","user":"","method":"bdev_get_bdevs","decision":"unauthenticated","status":401}
{"level":"INFO","msg":"serving"}
{"level":"INFO","msg":"call","user":"grafana","method":"thread_get_stats","decision":"learn","status":200}
{"level":"INFO","msg":"call","user":"build-farm","method":"bdev_lvol_resize","decision":"allow","status":200}
{"level":"INFO","msg":"call","user":"backup","method":"bdev_lvol_resize","decision":"learn","status":200}
`
	const want = `# What 4 users needed for 7 calls in the log (1 other lines). Remove methods that should not be allowed; globs make the list shorter.
roles:
  # For backup, build-farm. The built-in role csi-controller has all of it. Learning mode passed no call of build-farm: compare this role with the user's present roles, which may have conditions.
  learned-of-backup:
    allow:
      - bdev_lvol_resize
  # For csi. The built-in role csi-controller has all of it.
  learned-of-csi:
    allow:
      - bdev_lvol_create
      - spdk_get_version
  # For grafana. The built-in role metrics has all of it.
  learned-of-grafana:
    allow:
      - thread_get_stats
`
	assert.Equal(t, outcome{want, "", 0}, run(t, log, "policy", "learned"))
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte(log), 0o600))
	assert.Equal(t, outcome{want, "", 0}, run(t, "", "policy", "learned", path))
	assert.Contains(t, run(t, log, "policy", "learned", "--denied").stdout, "- spdk_kill_instance\n")
	o := run(t, "nothing\n", "policy", "learned")
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "journalctl")
	assert.Equal(t, exitUsage, run(t, "", "policy", "learned", "/none").code)
}

// A configuration with learning mode causes a warning when it is checked, served and reloaded.
func TestLearningCausesAWarning(t *testing.T) {
	path := writeConfig(t, target(t).Socket(), "learning: true")
	o := run(t, "", "check-config", path)
	assert.Equal(t, 0, o.code)
	assert.Contains(t, o.stderr, "warning: LEARNING is on: calls of every user")

	d := start(t, nil, "serve", "--config", path)
	d.waitForTimes("LEARNING is on", 1)
	d.hangUp()
	d.waitForTimes("LEARNING is on", 2)
	assert.Equal(t, 0, d.stop())
}
