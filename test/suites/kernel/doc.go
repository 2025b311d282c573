// Package kernel tests spdk-csi's node side on a kernel with NVMe over TCP and iSCSI, in a small
// virtual machine that is booted for each scenario. Run it with
//
//	make test-kernel
//	make test-kernel ARGS=--all                          # also the cases that take long
//	make test-kernel ARGS="-run NodePlugin -case parallel"  # chosen cases
//
// It installs nothing. The kernel, qemu and the file system tools come from Debian packages, which
// are unpacked into a directory in the user's cache (kit.go); delete that directory to get newer
// ones. The machine is emulated, so it does not need KVM. Its disk is an initramfs, and its init is
// the program in guest/. The program communicates with this test over HTTP (package control): it
// reports its steps and requests changes on the target.
//
// The program in the guest uses the connectors and the mounter itself. In TestNodePlugin and the
// tests after it in node_test.go, the program starts spdk-csi --node instead, and makes kubelet's
// calls over its socket. To kill the node plugin at each step, guest/tracer.go stops it at its
// system calls. Therefore, the plugin needs no code for these tests.
//
// Debian 12's kernel does not support NVMe in-band authentication. For TestAuthentication,
// SPDKGATE_KERNEL_DEB names the package of a kernel that does, such as linux-image-6.12…-amd64 of
// bookworm-backports. The target should offer only small groups (nvmf_set_config dhchap_dhgroups
// [null, ffdhe2048], before framework_start_init). SPDK and Linux would otherwise choose 8192 bits,
// which would take minutes on the emulated processor.
//
// The tests use targets of the guest's kernel: nvmet over TCP and emulated RDMA, and LIO. If
// SPDK_SOCK is the path of a real SPDK's socket, the tests also use that target. The real SPDK runs
// on the host, whose loopback the guest reaches as 10.0.2.2. If SPDK_TGT is the path of spdk_tgt,
// further tests start, kill and restart targets; with the argument --disable-cpumask-locks in
// SPDK_TGT_ARGS, several targets can share a core.
package kernel
