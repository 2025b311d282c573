// Package manual runs the commands in README.md and docs/ with bash, page by page and in order. The
// test fails if a command, exactly as written, fails.
//
// Each page has its own system: a root directory with the host's programs and a copy of /etc, a
// network with only the loopback interface, the host name storage-1, and a simulated target at
// /var/tmp/spdk.sock. Stubs (stubs/) replace programs that would change the host. systemctl runs
// the service's command, journalctl prints the log of that command between lines from systemd, and
// dpkg and kubectl parse the files that are passed to them.
//
// pages_test.go lists what readers have to replace on a page, and what must exist before a block is
// run. The package checks only commands and their exit codes, and does not depend on how the proxy
// works.
package manual
