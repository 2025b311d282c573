// Package manual runs the commands in README.md and docs/ with bash, page by page and in order. The
// test fails if a command fails as written.
//
// Each page has its own system: a root directory with the host's programs and a copy of /etc, a
// network with only the loopback interface, the host name storage-1, and a simulated target at
// /var/tmp/spdk.sock. Stubs (stubs/) replace programs that would change the host. systemctl runs
// the service's command, journalctl prints the log of that command between lines of systemd, and
// dpkg and kubectl parse the files passed to them.
//
// pages_test.go lists what a reader replaces on a page, and what must exist before a block. The
// package checks only commands and their exit codes, and does not depend on how the proxy works.
package manual
