// Package keys stores secrets where spdk_tgt reads them: in files on the target's host that only
// the target's user can read. The package then registers the files in SPDK's keyring. It never
// returns a stored secret.
//
// The package must not depend on who makes a call, which calls are allowed, or which tenant a name
// belongs to. It imports no other stage of the proxy.
package keys
