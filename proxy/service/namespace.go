package service

import (
	"os"
	"strings"
)

// uidMap is the file in which the kernel lists the users that are visible to this process.
const uidMap = "/proc/self/uid_map"

// usersAreHidden reports whether this process runs in a user namespace that hides users of this
// host, such as the namespace that systemd's PrivateUsers=yes creates. A namespace that hides only
// uids above 65535, such as that of PrivateUsers=identity, does not count.
func usersAreHidden(file string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false // the kernel does not support user namespaces
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "0" && f[1] == "0" && len(f[2]) >= len("65536") {
			return false
		}
	}
	return true
}
