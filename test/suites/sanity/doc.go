// Package sanity runs csi-sanity, the CSI project's test suite, against the real driver, the real
// proxy (HTTPS, users, roles) and a target. The target is simulated, with a data directory, loop
// devices and real mounts; or, when SPDK_SOCK is set, a real spdk_tgt. The test machine's kernel
// may be unable to attach a real target's exports, so the node side is simulated there.
//
// Each variant runs in its own process, since Ginkgo runs only one suite per process. Besides the
// suite's result, the tests check that it skipped only what the driver does not support.
package sanity
