package spdktest

import (
	"fmt"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// ConnectHost makes a subsystem report a connected host until the target is restarted or the
// subsystem is deleted. No host actually connects, and there is no I/O.
func (t *Target) ConnectHost(nqn, host string) error {
	t.mu.Lock()
	e := t.engine
	t.mu.Unlock()
	if e == nil {
		return errDead
	}
	_, err := e.do(func() (any, error) {
		s, ok := e.nvmf.subsystems[nqn]
		if !ok {
			return nil, fmt.Errorf("there is no subsystem %s", nqn)
		}
		s.controllers = append(s.controllers, spdkrpc.NVMfController{
			Cntlid: uint32(len(s.controllers) + 1), Cntrltype: new(spdkrpc.NVMfControllerCntrltypeIO), Hostnqn: host, Hostid: "00000000-0000-4000-8000-000000000000", NumIOQpairs: 1,
		})
		return nil, nil
	})
	return err
}
