package deploy

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
)

// The controller and the node plugin have only the permissions that driver/witness needs: a node
// cannot create, publish or delete a witness, and neither of them can list witnesses.
func TestReplicationRoles(t *testing.T) {
	const file = "kubernetes/replication/rbac.yaml"
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	objects, err := decode(file, source)
	require.NoError(t, err)
	require.Len(t, objects, 4)
	for who, verbs := range map[string]string{"controller": "get create update delete", "node": "get"} {
		role := find[*rbacv1.ClusterRole](t, objects, "spdkcsi-replication-"+who+"-role")
		assert.Equal(t, map[string]string{"spdkgate.io/replicatedvolumes": verbs, "spdkgate.io/replicatedvolumes/status": "update"}, flatten(t, role.Rules))
		binding := find[*rbacv1.ClusterRoleBinding](t, objects, "spdkcsi-replication-"+who+"-binding")
		assert.Equal(t, rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role.Name}, binding.RoleRef)
		assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "spdkcsi-" + who + "-sa", Namespace: namespace}}, binding.Subjects)
	}
}

// Installations must not contain the resource for witnesses until the driver uses it.
func TestReplicationIsNotInstalled(t *testing.T) {
	for _, o := range plain(t) {
		assert.NotContains(t, o.meta.GetName(), "replication")
		assert.NotContains(t, o.meta.GetName(), "replicatedvolumes")
	}
}
