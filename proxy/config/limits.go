package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// validateLimits checks the limits of users and connections, and target.peer_users.
func (c *Config) validateLimits() error {
	var wrong []error
	wrong = append(wrong,
		between("limits.user_in_flight", c.Limits.UserInFlight, 65536),
		between("limits.connections", c.Limits.Connections, 65536),
		between("limits.connections_per_source", c.Limits.ConnectionsPerSource, 65536))
	if c.Limits.UserCallsPerSecond != 0 {
		wrong = append(wrong, between("limits.user_calls_per_second", c.Limits.UserCallsPerSecond, maxCallsPerSecond))
	}
	wrong = append(wrong,
		c.limitsOfUsers("limits.users_in_flight", c.Limits.UsersInFlight, 65536),
		c.limitsOfUsers("limits.users_calls_per_second", c.Limits.UsersCallsPerSecond, maxCallsPerSecond))
	_, err := c.PeerUIDs()
	return errors.Join(append(wrong, err)...)
}

const maxCallsPerSecond = 1_000_000

// limitsOfUsers checks the limits for individual users.
func (c *Config) limitsOfUsers(key string, limits map[string]int, most int) error {
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		wrong = append(wrong, between(key+"."+name, limits[name], most))
		if !slices.ContainsFunc(c.Users, func(u User) bool { return u.Name == name }) {
			wrong = append(wrong, fmt.Errorf("%s: there is no user %s: use the name of a user", key, name))
		}
	}
	return errors.Join(wrong...)
}

// PeerUIDs returns the uids of the users in target.peer_users.
func (c *Config) PeerUIDs() ([]uint32, error) {
	var uids []uint32
	var wrong []error
	for _, name := range c.Target.PeerUsers {
		uid, err := uidOf(name)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("target.peer_users: there is no user %s on this host: use the name or number of the user that spdk_tgt runs as", name))
		}
		if uid == 65534 {
			wrong = append(wrong, fmt.Errorf("target.peer_users: %s (65534) is also how the kernel reports users of other namespaces: run spdk_tgt as a dedicated user", name))
		}
		uids = append(uids, uid)
	}
	return uids, errors.Join(wrong...)
}
