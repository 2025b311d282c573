// Package manual runs the commands in README.md and docs/ with bash, page by page and in their
// order. The test fails if a command fails as written.
//
// Each page has its own system: a root directory with the host's programs and a copy of /etc, a
// network with only the loopback interface, the host name storage-1, and a simulated target at
// /var/tmp/spdk.sock. Programs that would change the host are stubs (stubs/). systemctl runs the
// service's command, journalctl prints its log between systemd's own lines, and dpkg and kubectl
// read the files passed to them.
//
// pages_test.go lists what a reader replaces on a page, and what must exist before a block. The
// package must not know how the proxy works; it checks only commands and their exit codes.
package manual
