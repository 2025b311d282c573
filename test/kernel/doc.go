// Package kernel tests the node's side of spdk-csi on a kernel that has NVMe over TCP and iSCSI:
// a small virtual machine, booted for each scenario. Run it with
//
//	go test -tags kernel -count=1 -v ./test/kernel/
//
// Nothing is installed. Kernel, qemu and the file system tools come from Debian packages that are
// unpacked into a folder of the user's cache (kit.go); deleting the folder gets newer ones. The
// machine is emulated (no KVM is needed), has an initramfs for its disk and the program in guest/
// for its init, and speaks with this test over HTTP (package control): the guest reports its steps,
// and asks for what has to be done to the target.
//
// Targets are the guest kernel's own (nvmet, LIO), and a real SPDK, when SPDK_SOCK is the path of
// its socket: it runs on the host, whose loopback the guest sees as 10.0.2.2.
package kernel
