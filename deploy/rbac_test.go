package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// allowed lists the verbs that each role allows, by "group/resource", with the names of the objects
// that they are limited to. The deployed sidecars need no other verbs. Any addition would also
// benefit an attacker with a stolen token.
var allowed = map[string]map[string]string{
	"spdkcsi-provisioner-role": {
		"persistentvolumes":                              "get list watch create patch delete",
		"persistentvolumeclaims":                         "get list watch update",
		"events":                                         "create patch",
		"storage.k8s.io/storageclasses":                  "get list watch",
		"storage.k8s.io/volumeattributesclasses":         "get",
		"storage.k8s.io/volumeattachments":               "get list watch",
		"snapshot.storage.k8s.io/volumesnapshots":        "get list watch update",
		"snapshot.storage.k8s.io/volumesnapshotcontents": "get",
	},
	"spdkcsi-attacher-role": {
		"persistentvolumes":                       "get list watch patch",
		"storage.k8s.io/csinodes":                 "get list watch",
		"storage.k8s.io/volumeattachments":        "get list watch patch",
		"storage.k8s.io/volumeattachments/status": "patch",
	},
	"spdkcsi-resizer-role": {
		"persistentvolumes":                      "get list watch patch",
		"persistentvolumeclaims":                 "get list watch",
		"persistentvolumeclaims/status":          "patch",
		"events":                                 "create patch",
		"storage.k8s.io/volumeattributesclasses": "get list watch",
	},
	"spdkcsi-snapshotter-role": {
		"events": "create patch",
		"snapshot.storage.k8s.io/volumesnapshotclasses":         "get list watch",
		"snapshot.storage.k8s.io/volumesnapshotcontents":        "get list watch patch",
		"snapshot.storage.k8s.io/volumesnapshotcontents/status": "update patch",
	},
	"spdkcsi-events-role": {
		"persistentvolumes": "list",
		"events":            "create",
	},
	"spdkcsi-controller-role": {
		"secrets named spdkcsi-secret": "get",
		"coordination.k8s.io/leases":   "get create update",
	},
}

func TestRolesAllowOnlyTheListedVerbs(t *testing.T) {
	found := map[string]map[string]string{}
	for _, o := range plain(t) {
		switch r := o.Object.(type) {
		case *rbacv1.ClusterRole:
			assert.Nil(t, r.AggregationRule)
			found[r.Name] = flatten(t, r.Rules)
			for resource := range found[r.Name] {
				assert.NotContains(t, resource, "secrets", "%s: Secrets are read in one namespace, not in all", r.Name)
			}
		case *rbacv1.Role:
			found[r.Name] = flatten(t, r.Rules)
		}
	}
	assert.Equal(t, allowed, found)
}

func flatten(t *testing.T, rules []rbacv1.PolicyRule) map[string]string {
	flat := map[string]string{}
	for _, r := range rules {
		assert.Empty(t, r.NonResourceURLs)
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				key := strings.TrimPrefix(group+"/"+resource, "/")
				if len(r.ResourceNames) > 0 {
					key += " named " + strings.Join(r.ResourceNames, " ")
				}
				assert.NotContains(t, flat, key, "two rules for the same resource")
				flat[key] = strings.Join(r.Verbs, " ")
			}
		}
	}
	return flat
}

// Every role is bound only to the controller; the node service has no role.
func TestRolesAreBoundOnlyToTheController(t *testing.T) {
	objects := plain(t)
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "spdkcsi-controller-sa", Namespace: namespace}}
	var bound []string
	for _, o := range objects {
		switch b := o.Object.(type) {
		case *rbacv1.ClusterRoleBinding:
			assert.Equal(t, subject, b.Subjects, b.Name)
			find[*rbacv1.ClusterRole](t, objects, b.RoleRef.Name)
			assert.Equal(t, rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: b.RoleRef.Name}, b.RoleRef)
			bound = append(bound, b.RoleRef.Name)
		case *rbacv1.RoleBinding:
			assert.Equal(t, subject, b.Subjects, b.Name)
			find[*rbacv1.Role](t, objects, b.RoleRef.Name)
			assert.Equal(t, rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: b.RoleRef.Name}, b.RoleRef)
			bound = append(bound, b.RoleRef.Name)
		}
	}
	var roles []string
	for name := range allowed {
		roles = append(roles, name)
	}
	assert.ElementsMatch(t, roles, bound)

	assert.Equal(t, "spdkcsi-controller-sa", controller(t).pod.ServiceAccountName)
	assert.Equal(t, "spdkcsi-node-sa", node(t).pod.ServiceAccountName)
	for _, w := range workloads(t) {
		find[*corev1.ServiceAccount](t, objects, w.pod.ServiceAccountName)
	}
}

// The controller is allowed to read all Secrets that classes and volumes name.
func TestControllerCanReadNamedSecrets(t *testing.T) {
	role := find[*rbacv1.Role](t, plain(t), "spdkcsi-controller-role")
	require.Equal(t, namespace, role.Namespace)
	i := slices.IndexFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "secrets") })
	require.GreaterOrEqual(t, i, 0)
	named := namedSecrets(t)
	require.NotEmpty(t, named)
	for where, s := range named {
		assert.Equal(t, namespace, s.Namespace, where)
		assert.Contains(t, role.Rules[i].ResourceNames, s.Name, where)
		find[*corev1.Secret](t, plain(t), s.Name)
	}
}

// The sidecars may read additional Secrets by name: in the release's namespace, in the namespaces
// that the values list, or in all namespaces.
func TestChartGrantsAccessToClassSecrets(t *testing.T) {
	objects := rendered(t, map[string]any{"classSecrets": []any{
		map[string]any{"name": "host-keys"},
		map[string]any{"name": "host-keys-2", "namespaces": []any{"team-a", "team-b"}},
		map[string]any{"name": "everywhere", "namespaces": []any{"*"}},
	}})
	in := func(namespace string) []object {
		return slices.DeleteFunc(slices.Clone(objects), func(o object) bool { return o.meta.GetNamespace() != namespace })
	}
	reads := map[string]string{}
	for _, o := range objects {
		var rules []rbacv1.PolicyRule
		var subjects []rbacv1.Subject
		var ref rbacv1.RoleRef
		where := "*"
		switch r := o.Object.(type) {
		case *rbacv1.Role:
			b := find[*rbacv1.RoleBinding](t, in(r.Namespace), strings.Replace(r.Name, "-role", "-binding", 1))
			rules, subjects, ref, where = r.Rules, b.Subjects, b.RoleRef, r.Namespace
		case *rbacv1.ClusterRole:
			b := find[*rbacv1.ClusterRoleBinding](t, objects, strings.Replace(r.Name, "-role", "-binding", 1))
			rules, subjects, ref = r.Rules, b.Subjects, b.RoleRef
		default:
			continue
		}
		for key, verbs := range flatten(t, rules) {
			if strings.HasPrefix(key, "secrets") {
				reads[where+" "+key] = verbs
				assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "spdkcsi-controller-sa", Namespace: namespace}}, subjects, "%s in %s", o.meta.GetName(), where)
				assert.Equal(t, rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: o.kind(), Name: o.meta.GetName()}, ref)
			}
		}
	}
	assert.Equal(t, map[string]string{
		namespace + " secrets named spdkcsi-secret": "get",
		namespace + " secrets named host-keys":      "get",
		"team-a secrets named host-keys-2":          "get",
		"team-b secrets named host-keys-2":          "get",
		"* secrets named everywhere":                "get",
	}, reads)
}
