// Package sanity runs csi-sanity, the CSI project's test suite, against the real driver, the real
// proxy (HTTPS, users, roles) and a target. The target is simulated, with a data directory, loop
// devices and real mounts; or, if SPDK_SOCK is set, it is a real spdk_tgt. The test machine's
// kernel may be unable to attach a real target's exports, so in that case, the node side is
// simulated.
//
// Each variant runs in its own process, since Ginkgo runs only one suite per process. In addition
// to the suite's result, the tests check that the suite skipped only what the driver does not
// support.
package sanity
