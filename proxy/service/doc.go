// Package service runs a proxy as a system service: on the socket that systemd opened, under
// systemd's watchdog, and with a configuration that is reloaded when its files change. It also
// works without systemd.
//
// It may not know what a call is, nor the stages of the proxy.
package service
