// Package operation runs operations on a node that may hang in the kernel for longer than their callers wait.
//
// [Run] bounds the wait of the caller, and keeps the objects of an operation locked until it has really ended: a mkfs must
// not be killed half way, and a hung system call cannot be, so the next operation must not start beside it. A [Step] names
// what an operation is doing. [Share] has all callers of a query wait for one call of it.
//
// It may not know what the operations are: no devices, no mounts, nothing of CSI.
package operation
