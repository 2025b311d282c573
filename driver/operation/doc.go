// Package operation runs operations on a node that may hang in the kernel for longer than their
// callers wait.
//
// [Run] limits how long the caller waits, and keeps the objects of an operation locked until the
// operation has ended. A mkfs must not be killed half way, and a hung system call cannot be killed,
// so the next operation on the same object must not start meanwhile. A [Step] reports what an
// operation is doing. [Share] lets all callers of a query wait for one call.
//
// It must not know what the operations are: no devices, no mounts, nothing about CSI.
package operation
