// Package keys places secrets where spdk_tgt reads them: in files on the target's host that only
// the target's user can read. It then registers them in SPDK's keyring. A placed secret is never
// returned.
//
// It knows files and SPDK's keyring. It may not know who calls, what is allowed, or which tenant a
// name belongs to; no other stage of the proxy is imported here.
package keys
