// Package keys stores secrets where spdk_tgt reads them: in files on the target's host readable
// only by the target's user. It then registers them in SPDK's keyring. A stored secret is never
// returned.
//
// It deals with files and SPDK's keyring. It must not depend on who calls, what is allowed, or
// which tenant a name belongs to. It imports no other stage of the proxy.
package keys
