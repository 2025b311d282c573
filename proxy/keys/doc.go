// Package keys places secrets where spdk_tgt reads them: in files beside the
// target, of its own user and closed to everybody else, which its keyring is then
// told of. Once placed, a secret is never shown again.
//
// It knows files and SPDK's keyring. It may not know who calls, what is allowed or
// whose a name is; no other stage of the proxy is imported here.
package keys
