package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"path/filepath"
	"strconv"
)

// ListenUnix configures the socket for programs on this host that use SPDK's own protocol. Without
// a path, there is no such socket.
type ListenUnix struct {
	Path  string `yaml:"path" empty:"no"`
	Owner string `yaml:"owner" empty:"no"`
	Group string `yaml:"group" empty:"no"`
	Mode  string `yaml:"mode" empty:"no"`
	// Idle is how long a connection without calls stays open.
	Idle Duration `yaml:"idle"`
}

// Local lists local users and groups, by name or number. Their programs are authenticated as this
// user when they connect to ListenUnix.Path.
type Local struct {
	Users  []string `yaml:"users"`
	Groups []string `yaml:"groups"`
}

// maxSocketPath is the maximum length of a UNIX socket's path, in bytes.
const maxSocketPath = 107

func (c *Config) validateListenUnix() error {
	l := &c.ListenUnix
	if l.Path == "" {
		if d := Default().ListenUnix; *l != d {
			return errors.New("listen_unix has no path: set it, or remove listen_unix")
		}
		return nil
	}
	var wrong []error
	path, err := c.path(l.Path)
	wrong = append(wrong, err)
	if err == nil {
		l.Path = filepath.Clean(path)
	}
	if len(l.Path) > maxSocketPath {
		wrong = append(wrong, fmt.Errorf("listen_unix.path is longer than %d bytes, the limit of the kernel: choose a shorter path", maxSocketPath))
	}
	if l.Path == filepath.Clean(c.Target.Socket) {
		wrong = append(wrong, errors.New("listen_unix.path is the same as target.socket, at which spdk_tgt listens: choose another path"))
	}
	_, _, _, err = l.Permissions()
	return errors.Join(append(wrong, err)...)
}

// Permissions returns the permissions, owner and group of the socket. An id of -1 means this
// process's user or group.
func (l ListenUnix) Permissions() (perm fs.FileMode, uid, gid int, err error) {
	uid, gid = -1, -1
	var wrong []error
	mode, err := strconv.ParseUint(l.Mode, 8, 32)
	if err != nil || mode > 0o777 || mode&0o222 == 0 {
		wrong = append(wrong, errors.New(`listen_unix.mode must be octal permissions, such as "0660"; to connect, a user needs permission to write`))
	}
	if l.Owner != "" {
		n, err := uidOf(l.Owner)
		uid, wrong = int(n), append(wrong, inKey("listen_unix.owner", err))
	}
	if l.Group != "" {
		n, err := gidOf(l.Group)
		gid, wrong = int(n), append(wrong, inKey("listen_unix.group", err))
	}
	return fs.FileMode(mode), uid, gid, errors.Join(wrong...)
}

// ids returns the uids and gids of these users and groups.
func (l *Local) ids() (uids, gids []uint32, err error) {
	var wrong []error
	if len(l.Users) == 0 && len(l.Groups) == 0 {
		wrong = append(wrong, errors.New("local has neither users nor groups: set one of them, or remove local"))
	}
	for _, name := range l.Users {
		uid, err := uidOf(name)
		uids, wrong = append(uids, uid), append(wrong, inKey("local.users", err))
	}
	for _, name := range l.Groups {
		gid, err := gidOf(name)
		gids, wrong = append(gids, gid), append(wrong, inKey("local.groups", err))
	}
	return uids, gids, errors.Join(wrong...)
}

func inKey(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", key, err)
}

// uidOf returns the uid of a user of this host, given by name or number.
func uidOf(name string) (uint32, error) {
	id := name
	if u, err := user.Lookup(name); err == nil {
		id = u.Uid
	}
	uid, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("there is no user %s in this host's /etc/passwd: use another name, or the number of the user", name)
	}
	return uint32(uid), nil
}

// gidOf returns the gid of a group of this host, given by name or number.
func gidOf(name string) (uint32, error) {
	id := name
	if g, err := user.LookupGroup(name); err == nil {
		id = g.Gid
	}
	gid, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("there is no group %s in this host's /etc/group: use another name, or the number of the group", name)
	}
	return uint32(gid), nil
}

// warnAboutLocal adds a warning if no user may use the socket for programs on this host.
func (c *Config) warnAboutLocal() {
	if c.ListenUnix.Path == "" {
		return
	}
	for _, u := range c.Users {
		if u.Local != nil {
			return
		}
	}
	c.warnings = append(c.warnings, "listen_unix: every call is refused, because no user has local: add the users or groups of this host to it")
}
