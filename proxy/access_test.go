package proxy

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/console"
	"github.com/spdkgate/spdkgate/proxy/policy"
)

// withTeam adds a tenant with a user, and a role with conditions.
func withTeam(c *config.Config) {
	c.Tenants = map[string]config.Tenant{"team": {LVStores: []string{"lvs-team"}}}
	c.Roles["small"] = config.Role{
		Allow: []policy.Rule{{Method: "bdev_lvol_create", Where: map[string]policy.Test{"/lvs_name": {Glob: "lvs-*"}}}, {Method: "nvmf_create_transport"}},
		Deny:  []policy.Rule{{Method: "bdev_lvol_delete"}},
	}
	c.Users = append(c.Users, config.User{Name: "team", PasswordHash: hashes()[viewerPassword], Roles: []string{"small", "csi-controller"}, Tenant: "team"})
}

func decoded[T any](t *testing.T, g got) (v T) {
	t.Helper()
	require.Equal(t, http.StatusOK, g.StatusCode, g.body)
	require.NoError(t, json.Unmarshal([]byte(g.body), &v))
	return v
}

func TestAccessListsAllowedMethods(t *testing.T) {
	b := newBench(t, "v26.05", withTeam)
	u := b.browser()
	u.signIn(passwordOf("team", viewerPassword))
	a := decoded[console.AccessAnswer](t, u.do("GET", "/console/access", ""))
	assert.Equal(t, []any{"console.access", "allow", "session"}, []any{b.lastCall()["method"], b.lastCall()["decision"], b.lastCall()["auth"]})
	assert.Equal(t, "team", a.User)
	assert.Equal(t, "team", *a.Tenant)
	assert.Equal(t, []string{"small", "csi-controller"}, a.Roles)
	of := map[string]console.MethodAccess{}
	for _, m := range a.Methods {
		of[m.Name] = m
	}
	assert.Equal(t, console.MethodAccess{Name: "bdev_get_bdevs", Decision: "allowed", Rule: "role csi-controller: allow bdev_get_bdevs"}, of["bdev_get_bdevs"])
	assert.Equal(t, console.MethodAccess{Name: "bdev_lvol_delete", Decision: "refused", Rule: "role small: deny bdev_lvol_delete"}, of["bdev_lvol_delete"])
	assert.Equal(t, console.MethodAccess{Name: "bdev_malloc_create", Decision: "refused", Rule: "no rule allows it"}, of["bdev_malloc_create"])
	assert.Equal(t, console.MethodAccess{Name: "nvmf_create_transport", Decision: "refused", Rule: "tenant team"}, of["nvmf_create_transport"])
	assert.Equal(t, "allowed", of["bdev_lvol_create"].Decision, "csi-controller allows it without conditions")
	assert.NotContains(t, of, "spdkgate_config_save", "the configuration does not enable it")
	assert.Greater(t, len(of), 200)

	viewer := decoded[console.AccessAnswer](t, b.do("GET", "/console/access", "viewer", viewerPassword, nil))
	assert.Equal(t, "viewer", viewer.User)
	assert.Nil(t, viewer.Tenant)
	assert.Equal(t, http.StatusUnauthorized, b.browser().do("GET", "/console/access", "").StatusCode)
}

func TestExplainNamesTheDecidingRule(t *testing.T) {
	b := newBench(t, "v26.05", withTeam, func(c *config.Config) {
		c.Users = append(c.Users, config.User{Name: "small", PasswordHash: hashes()[viewerPassword], Roles: []string{"small"}})
	})
	_, err := b.proxy.target.Probe(t.Context())
	require.NoError(t, err)
	u := b.browser()
	u.signIn(passwordOf("small", viewerPassword))
	explain := func(body string) console.ExplainAnswer {
		return decoded[console.ExplainAnswer](t, u.do("POST", "/console/explain", body))
	}

	a := explain(`{"method":"bdev_lvol_create"}`)
	assert.Equal(t, []string{"small", "bdev_lvol_create", "conditional", policy.Open}, []string{a.User, a.Method, a.Decision, a.Rule})
	assert.Equal(t, "Whether small may call bdev_lvol_create depends on the parameters: give them.", a.Verdict)
	a = explain(`{"method":"bdev_lvol_create","params":{"lvol_name":"v","lvs_name":"lvs-a","size":1048576}}`)
	assert.Equal(t, "allowed", a.Decision)
	assert.Equal(t, []console.TranslatedParams{{From: "size", To: "size_in_mib"}}, a.Translated)
	require.Len(t, a.Rules, 1)
	assert.Equal(t, console.ExplainedRule{Role: "small", Rule: "role small: allow bdev_lvol_create where /lvs_name is lvs-*", Effect: "allow", Decides: true, Why: "decides"}, a.Rules[0])
	a = explain(`{"method":"bdev_lvol_create","params":{"lvol_name":"v","lvs_name":"other","size_in_mib":1}}`)
	assert.Equal(t, "refused", a.Decision)
	a = explain(`{"method":"bdev_lvol_create","params":{"lvol_name":"v"}}`)
	assert.Equal(t, "refused", a.Decision)
	require.NotNil(t, a.Invalid)

	assert.Equal(t, http.StatusForbidden, u.do("POST", "/console/explain", `{"method":"bdev_lvol_create","user":"admin"}`).StatusCode)
	assert.Equal(t, http.StatusForbidden, u.do("POST", "/console/explain", `{"method":"bdev_lvol_create","user":"nobody"}`).StatusCode, "nor does it tell who exists")
	assert.Equal(t, http.StatusOK, u.do("POST", "/console/explain", `{"method":"bdev_lvol_create","user":"small"}`).StatusCode)
	assert.Equal(t, http.StatusForbidden, u.do("POST", "/console/explain", `{"method":"bdev_lvol_create"}`, csrfHeader, "").StatusCode)
	for body, says := range map[string]string{
		`{"method":"bdev_lvol_crate"}`:              "did you mean bdev_lvol_create?",
		`{"method":"bdev_lvol_create","parms":{}}`:  "send {",
		`{"method":"bdev_lvol_create","params":[]}`: "send {",
		`{"method":1}`: "send {",
		`[]`:           "send {",
		`{"method":"bdev_lvol_create","method":"spdk_kill_instance"}`:    "send {",
		`{"method":"bdev_lvol_create","params":{"lvs_name":1e99999999}}`: "",
	} {
		resp := u.do("POST", "/console/explain", body)
		assert.Equal(t, http.StatusBadRequest, resp.StatusCode, body)
		assert.Contains(t, strings.ToLower(resp.message(t)), says, body)
	}

	admin := b.browser()
	admin.signIn(passwordOf("admin", adminPassword))
	a = decoded[console.ExplainAnswer](t, admin.do("POST", "/console/explain", `{"method":"nvmf_create_transport","user":"team"}`))
	assert.Equal(t, []string{"team", "refused", "tenant team"}, []string{a.User, a.Decision, a.Rule})
	assert.NotNil(t, a.Standing)
	assert.Equal(t, "team", *a.Tenant)
	a = decoded[console.ExplainAnswer](t, admin.do("POST", "/console/explain", `{"method":"nvmf_subsystem_add_host","params":{"nqn":"nqn.2024-01.com.example:v","host":"nqn.2024-01.com.example.foreign:x"},"user":"team"}`))
	assert.Equal(t, []string{"refused", "tenant team"}, []string{a.Decision, a.Rule})
	assert.Contains(t, *a.Standing, "host is not a host of this tenant")
	assert.Equal(t, http.StatusBadRequest, admin.do("POST", "/console/explain", `{"method":"nvmf_create_transport","user":"none"}`).StatusCode)
	assert.Empty(t, b.reached(), "nothing is executed")
}
