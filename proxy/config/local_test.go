package config

import (
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSocketPermissionsAreParsed(t *testing.T) {
	c, err := Load("testdata/local.good.yml")
	require.NoError(t, err)
	assert.Equal(t, "testdata/rpc.sock", c.ListenUnix.Path)
	perm, uid, gid, err := c.ListenUnix.Permissions()
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o666), perm)
	assert.Zero(t, uid)
	assert.Zero(t, gid)
	assert.Equal(t, Duration(24*time.Hour), c.ListenUnix.Idle)
	users, err := c.AuthUsers()
	require.NoError(t, err)
	assert.Equal(t, []uint32{0, 1000}, users[0].UIDs)
	assert.Equal(t, []uint32{0, 50}, users[0].GIDs)
	assert.Empty(t, c.Warnings())

	perm, uid, gid, err = Default().ListenUnix.Permissions()
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o660), perm)
	assert.Equal(t, []int{-1, -1}, []int{uid, gid})
}

func TestUnusableLocalSocketCausesAWarning(t *testing.T) {
	text, err := os.ReadFile("testdata/hash")
	require.NoError(t, err)
	c, err := Load(writeFile(t, "listen: \":1\"\nlisten_unix: {path: /run/x}\nusers: [{name: a, password_hash: \""+string(text[:len(text)-1])+"\", roles: [admin]}]\n"))
	require.NoError(t, err)
	require.Len(t, c.Warnings(), 1)
	assert.Contains(t, c.Warnings()[0], "no user has local")
}
