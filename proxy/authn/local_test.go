package authn

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPeersAreIdentified(t *testing.T) {
	a, err := New([]User{
		{Name: "operator", UIDs: []uint32{1000}, GIDs: []uint32{50}},
		{Name: "reader", UIDs: []uint32{0, 1001}, GIDs: []uint32{60, 61}},
		{Name: "remote"},
	}, Options{})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		peer       Peer
		user       string
		credential string
	}{
		"uid":                                 {Peer{UID: 1000, GID: 1000}, "operator", "uid 1000"},
		"a uid takes precedence over a group": {Peer{UID: 1001, GID: 50, Groups: []uint32{50}}, "reader", "uid 1001"},
		"root has no special permissions":     {Peer{UID: 0}, "reader", "uid 0"},
		"primary group":                       {Peer{UID: 7, GID: 61}, "reader", "uid 7, gid 61"},
		"supplementary group":                 {Peer{UID: 7, GID: 7, Groups: []uint32{1, 60}}, "reader", "uid 7, gid 60"},
		"the first of several matching users": {Peer{UID: 7, GID: 60, Groups: []uint32{61, 50}}, "operator", "uid 7, gid 50"},
		"nobody":                              {Peer{UID: 7, GID: 7, Groups: []uint32{1, 2}}, "", "uid 7"},
		"a hidden user":                       {Peer{UID: 65534, GID: 50}, "", "uid 65534"},
		"a gid is not a uid":                  {Peer{UID: 50, GID: 1000}, "", "uid 50"},
	} {
		t.Run(name, func(t *testing.T) {
			who, err := a.Authenticate(t.Context(), Evidence{Peer: &c.peer, Authorization: []string{"Bearer x"}})
			assert.Equal(t, Identity{User: c.user, Method: ByPeer, Credential: c.credential}, who)
			if c.user == "" {
				require.ErrorIs(t, err, ErrWrongCredentials)
				return
			}
			require.NoError(t, err)
		})
	}
	_, err = a.Authenticate(t.Context(), Evidence{})
	require.ErrorIs(t, err, ErrNoCredentials, "a request on another socket has no peer")
}

func TestInvalidLocalRulesAreRejected(t *testing.T) {
	for says, users := range map[string][]User{
		"users a and b both list user 5 of this host":  {{Name: "a", UIDs: []uint32{5}}, {Name: "b", UIDs: []uint32{5}}},
		"users a and b both list group 5 of this host": {{Name: "a", GIDs: []uint32{5}}, {Name: "b", GIDs: []uint32{5}}},
		"local.users contains 65534":                   {{Name: "a", UIDs: []uint32{65534}}},
		"local.groups contains 65534":                  {{Name: "a", GIDs: []uint32{65534}}},
	} {
		_, err := New(users, Options{})
		require.ErrorContains(t, err, says)
	}
	_, err := New([]User{{Name: "a", UIDs: []uint32{5, 5}, GIDs: []uint32{5, 5}}}, Options{})
	require.NoError(t, err)
}
