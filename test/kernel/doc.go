// Package kernel tests the node's side of spdk-csi on a kernel with NVMe over TCP and iSCSI, in a
// small virtual machine that is booted for each scenario. Run it with
//
//	go test -tags kernel -count=1 -v ./test/kernel/
//
// It installs nothing. Kernel, qemu and file system tools come from Debian packages, which are
// unpacked into a folder of the user's cache (kit.go); delete the folder to get newer ones. The
// machine is emulated, so it does not need KVM. Its disk is an initramfs, and its init is the program
// in guest/, which communicates with this test over HTTP (package control): it reports its steps, and
// asks for changes of the target.
//
// Targets are those of the guest's kernel (nvmet, LIO) and, if SPDK_SOCK is the path of its socket, a
// real SPDK. That runs on the host, whose loopback the guest reaches as 10.0.2.2.
package kernel
