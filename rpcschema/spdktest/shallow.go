package spdktest

import (
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A shallowCopy is an operation that copies a read-only volume's clusters to another bdev, and that
// continues after the response. The simulation does not copy data.
type shallowCopy struct {
	total  uint64
	ended  bool
	failed syscall.Errno
}

func init() {
	handle("bdev_lvol_start_shallow_copy", (*engine).startShallowCopy)
	handle("bdev_lvol_check_shallow_copy", (*engine).checkShallowCopy)
}

func (e *engine) startShallowCopy(p spdkrpc.BdevLvolStartShallowCopyParams) (o spdkrpc.LvolShallowCopyOperation, err error) {
	l, err := e.lvol(p.SrcLvolName)
	if err != nil {
		return o, err
	}
	to, ok := e.bdevs.find(p.DstBdevName)
	switch {
	case !ok:
		return o, invalid(syscall.ENODEV)
	case to.claim.by != "":
		return o, invalid(syscall.EPERM)
	}
	c := &shallowCopy{total: l.Allocated}
	e.copies = append(e.copies, c)
	switch {
	case !l.ReadOnly:
		c.failed = syscall.EPERM
	case l.busy:
		c.failed = syscall.EBUSY
	default:
		l.busy, to.claim = true, claim{by: "lvol", kind: exclusiveWrite}
		time.AfterFunc(e.target.opts.Work, func() {
			_, _ = e.do(func() (any, error) {
				l.busy, to.claim, c.ended = false, claim{}, true
				return nil, nil
			})
		})
	}
	return spdkrpc.LvolShallowCopyOperation{OperationID: uint32(len(e.copies))}, nil
}

func (e *engine) checkShallowCopy(p spdkrpc.BdevLvolCheckShallowCopyParams) (s spdkrpc.LvolShallowCopyStatus, err error) {
	i := int(p.OperationID) - 1
	if i < 0 || i >= len(e.copies) || e.copies[i] == nil {
		return s, errno(syscall.ENODEV)
	}
	c := e.copies[i]
	s = spdkrpc.LvolShallowCopyStatus{TotalClusters: c.total, State: spdkrpc.LvolShallowCopyStatusStateInProgress}
	switch {
	case c.failed != 0:
		s.State, s.Error = spdkrpc.LvolShallowCopyStatusStateError, new(strerror(c.failed))
	case c.ended:
		s.State, s.CopiedClusters = spdkrpc.LvolShallowCopyStatusStateComplete, c.total
	default:
		return s, nil
	}
	e.copies[i] = nil
	return s, nil
}
