// Package operation runs operations on a node that may hang in the kernel for longer than their
// callers wait.
//
// [Run] limits how long the caller waits, and keeps the objects of an operation locked until the
// operation has ended. A running mkfs must not be killed, and a hung system call cannot be killed,
// so the next operation on the same object must not start until the first operation has ended. A
// [Step] reports what an operation is doing. [Share] lets all callers of a query wait for one call.
//
// Package operation must not depend on what the operations do, for example on devices, mounts or
// CSI.
package operation
