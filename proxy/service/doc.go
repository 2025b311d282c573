// Package service runs a proxy as a system service: on a socket opened by systemd, under systemd's
// watchdog, and with a configuration that is reloaded when its files change. It also works without
// systemd.
//
// The package must not depend on the content of calls, or on the stages of the proxy.
package service
