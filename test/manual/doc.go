// Package manual runs the commands that README.md and docs/ tell people to type, page
// by page and in their order, as bash reads them. A command that fails as written
// fails the test.
//
// Each page has a system of its own: a root folder with the host's programs and a
// copy of /etc, a network with nothing but loopback, the host name storage-1, and a
// simulated target at /var/tmp/spdk.sock. What would change a real host is a stub
// (stubs/): systemctl runs the service's command, journalctl prints its log with
// systemd's own lines around it, dpkg and kubectl look at the files that they are given.
//
// What a person would type or replace on a page, and what must be there before a block,
// is listed in pages_test.go. It may not know how the proxy works inside: only
// commands and their exit codes count.
package manual
