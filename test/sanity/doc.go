// Package sanity runs csi-sanity, the CSI project's own suite, over the real driver, the real proxy (HTTPS, users,
// roles) and a target: the simulated one, with a data folder, loop devices and real mounts; or, when SPDK_SOCK is set, a
// real spdk_tgt, whose exports this machine's kernel cannot attach, so that its node side is a stand-in.
//
// Each variant is a process of its own, since Ginkgo runs one suite in each. Besides the suite's own verdict, the list
// of what it skipped is held against what the driver does not offer.
package sanity
