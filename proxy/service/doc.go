// Package service runs a proxy as a service of the system: on the socket that
// systemd holds, watched by its watchdog, with a configuration that is read anew
// when it changes. It works without systemd too, which then is told nothing.
//
// It may not know what a call is: the proxy's stages are not its business.
package service
