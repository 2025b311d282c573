package service

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// serviceUser is the value of User= and Group= in the packaged unit.
const serviceUser = "spdk-proxy"

// UnreadableFiles returns a warning for each file that the packaged service's user cannot read. It
// ignores files in the directory credentials, because systemd reads them as root. If the service's
// user does not exist, there are no warnings.
func UnreadableFiles(files []string, credentials string) []string {
	u, err := user.Lookup(serviceUser)
	if err != nil {
		return nil
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	if uidErr != nil || gidErr != nil {
		return nil
	}
	return unreadableFiles(files, credentials, uint32(uid), uint32(gid))
}

func unreadableFiles(files []string, credentials string, uid, gid uint32) (warnings []string) {
	for _, file := range files {
		if credentials != "" && strings.HasPrefix(file, credentials+"/") {
			continue
		}
		path, err := filepath.EvalSymlinks(file)
		if err != nil {
			continue // the configuration check reports missing files
		}
		if !permitted(path, 4, uid, gid) {
			warnings = append(warnings, fmt.Sprintf("%s: the service's user %s cannot read this file: chgrp %s %s && chmod g+r %s", file, serviceUser, serviceUser, file, file))
			continue
		}
		for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
			if !permitted(dir, 1, uid, gid) {
				warnings = append(warnings, fmt.Sprintf("%s: the service's user %s cannot enter the directory %s: move the file to /etc/spdk-proxy, or permit that", file, serviceUser, dir))
				break
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return warnings
}

// permitted reports whether a file's mode allows a user's access. access is 4 for reading a file
// and 1 for entering a directory. If an access control list applies, the mode is not conclusive, so
// permitted returns true.
func permitted(path string, access os.FileMode, uid, gid uint32) bool {
	info, err := os.Stat(path)
	if err != nil {
		return true
	}
	if n, err := syscall.Getxattr(path, "system.posix_acl_access", nil); err == nil && n > 0 {
		return true
	}
	owner := info.Sys().(*syscall.Stat_t)
	switch {
	case owner.Uid == uid:
		access <<= 6
	case owner.Gid == gid:
		access <<= 3
	}
	return info.Mode().Perm()&access != 0
}
