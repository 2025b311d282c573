package config

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/proxy/policy"
)

// Role determines the calls that its users may make.
type Role = policy.Role

// PolicyUsers returns the users for package policy.
func (c *Config) PolicyUsers() map[string]policy.User {
	users := make(map[string]policy.User, len(c.Users))
	for _, u := range c.Users {
		users[u.Name] = policy.User{Roles: u.Roles, Learning: c.Learning || u.Learning}
	}
	return users
}

// warnAboutLearning adds a warning about users whose calls are allowed regardless of their roles.
func (c *Config) warnAboutLearning() {
	const means = "are allowed, and logged with decision learn; `spdk-proxy policy learned` creates roles from the log. Remove the key after some days"
	if c.Log.Level > slog.LevelWarn && (c.Learning || slices.ContainsFunc(c.Users, func(u User) bool { return u.Learning })) {
		c.warnings = append(c.warnings, "LEARNING is on, but log.level hides what is learned: set it to info")
	}
	if c.Learning {
		c.warnings = append(c.warnings, "LEARNING is on: calls of every user that no role allows, or one denies, "+means)
		return
	}
	var names []string
	for _, u := range c.Users {
		if u.Learning {
			names = append(names, u.Name)
		}
	}
	if len(names) > 0 {
		c.warnings = append(c.warnings, fmt.Sprintf("LEARNING is on for %s: calls that no role allows, or one denies, %s", strings.Join(names, ", "), means))
	}
}

// LearningUsers returns the number of users in learning mode.
func (c *Config) LearningUsers() (n int) {
	for _, u := range c.Users {
		if c.Learning || u.Learning {
			n++
		}
	}
	return n
}
