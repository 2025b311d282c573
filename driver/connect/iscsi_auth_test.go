package connect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

const (
	password       = "correct-horse-1"
	targetPassword = "battery-staple-2"
)

func withPasswords(t *testing.T, e Export, mutual bool) Export {
	t.Helper()
	secrets := map[string]string{"chap-user": "user", "chap-password": password}
	if mutual {
		secrets["chap-target-user"], secrets["chap-target-password"] = "target", targetPassword
	}
	k, err := hostauth.Read(hostauth.CHAP, secrets, "")
	require.NoError(t, err)
	e.Authentication = hostauth.CHAP
	return e.WithKeys(k)
}

const record = `# BEGIN RECORD 2.1.8
node.name = iqn.2016-06.io.spdk:x
node.session.auth.authmethod = None
node.session.auth.password = former-password
node.session.auth.chap_algs = MD5
node.conn[0].address = 127.0.0.1
# END RECORD
`

// Passwords are written to the record that iscsiadm has created, and are never passed as arguments.
func TestISCSIConnectAuthenticates(t *testing.T) {
	for name, where := range map[string]string{
		"Debian":       "etc/iscsi/nodes/" + iqn1 + "/127.0.0.1,PORT",
		"others":       "var/lib/iscsi/nodes/" + iqn1 + "/127.0.0.1,PORT",
		"with a group": "var/lib/iscsi/nodes/" + iqn1 + "/127.0.0.1,PORT,1/spdkgate",
		"container":    "host/proc/1/root/etc/iscsi/nodes/" + iqn1 + "/127.0.0.1,PORT",
	} {
		for _, mutual := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				k, c := newISCSIKernel(t)
				where := strings.ReplaceAll(where, "PORT", k.export.Port)
				k.file(where, record)
				k.file(filepath.Dir(filepath.Dir(where))+"/127.0.0.2,3260", record) // the record of another address
				_, err := c.Connect(t.Context(), withPasswords(t, k.export, mutual))
				require.NoError(t, err)
				text, err := os.ReadFile(filepath.Join(k.root, where))
				require.NoError(t, err)
				want := strings.Replace(strings.Replace(record, "node.session.auth.authmethod = None\n", "", 1), "node.session.auth.password = former-password\n", "", 1)
				settings := "node.session.auth.authmethod = CHAP\nnode.session.auth.username = user\nnode.session.auth.password = " + password + "\n"
				if mutual {
					settings += "node.session.auth.username_in = target\nnode.session.auth.password_in = " + targetPassword + "\n"
				}
				assert.Equal(t, strings.Replace(want, "# END", settings+"# END", 1), string(text))
				info, err := os.Stat(filepath.Join(k.root, where))
				require.NoError(t, err)
				assert.Equal(t, os.FileMode(0o600), info.Mode())
				for _, line := range k.commands() {
					assert.NotContains(t, line, password)
					assert.NotContains(t, line, targetPassword)
					assert.NotContains(t, line, "auth")
				}
				left, err := filepath.Glob(filepath.Join(k.root, "*/*/.spdkgate*"))
				require.NoError(t, err)
				assert.Empty(t, left)
			})
		}
	}
}

func TestISCSIConnectWithoutUsableKeysFails(t *testing.T) {
	k, c := newISCSIKernel(t)
	e := k.export
	e.Authentication = hostauth.CHAP
	_, err := c.Connect(t.Context(), e)
	require.ErrorIs(t, err, ErrNoKeys)
	assert.Empty(t, k.commands(), "nothing was created")
	e = withPasswords(t, k.export, true)
	_, err = c.Connect(t.Context(), e)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "/var/lib/iscsi")
	ran := k.commands()
	assert.Contains(t, ran[len(ran)-1], "-o delete", "the record is removed again")
	unreadable := "var/lib/iscsi/nodes/" + iqn1 + "/127.0.0.1," + k.export.Port
	k.link(unreadable, "missing")
	_, err = c.Connect(t.Context(), e)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.NotErrorIs(t, err, ErrUnsupported, "iscsiadm has a record, which cannot be read")
	k.remove(unreadable)
	k.file("etc/iscsi/nodes/"+iqn1+"/127.0.0.1,"+k.export.Port, record)
	k.exit["--login"] = exitAuthFailed
	_, err = c.Connect(t.Context(), e)
	require.ErrorIs(t, err, ErrAuthentication)
	require.ErrorContains(t, err, "the target refused this node's user or password")
	assert.NotContains(t, err.Error(), password)
	k.exit["--login"] = exitFatalLogin
	_, err = c.Connect(t.Context(), e)
	require.ErrorIs(t, err, ErrAuthentication)
	require.ErrorContains(t, err, "compare chap-target-user and chap-target-password")
	k.exit["--login"] = exitAuthFailed
	_, err = c.Connect(t.Context(), withPasswords(t, k.export, false))
	require.ErrorIs(t, err, ErrAuthentication)
	_, err = c.Connect(t.Context(), k.export)
	require.ErrorIs(t, err, ErrRefused)
}

// After the target has refused a node's first login, the node has no interface record. Without this
// record, iscsiadm deletes nothing.
func TestISCSIDisconnectRecreatesMissingInterface(t *testing.T) {
	k, c := newISCSIKernel(t)
	made := false
	k.answer = func(line string) (int, bool) {
		made = made || strings.Contains(line, "-m iface") && strings.Contains(line, "-o new")
		const cannotReadInterface = 3
		return cannotReadInterface, !made && strings.Contains(line, "-o delete")
	}
	require.NoError(t, c.Disconnect(t.Context(), k.export))
	assert.True(t, made)
}
