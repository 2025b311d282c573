// Command guest is the init process of the virtual machine for the tests of spdk-csi's node side.
// It sets the machine up, runs one scenario, reports each step to the host, and shuts the machine
// down.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == launch {
		fmt.Println("guest: launch:", runTraced(os.Args[2:]))
		os.Exit(1)
	}
	err := start()
	if err != nil {
		fmt.Println("guest:", err)
	}
	unix.Sync()
	// Because qemu runs with -no-reboot, it ends here.
	fmt.Println("guest: end:", unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
}

func start() (err error) {
	if err := setUp(); err != nil {
		return fmt.Errorf("set the machine up: %w", err)
	}
	params, err := parameters()
	if err != nil {
		return err
	}
	limit := 25 * time.Minute // many times longer than needed on an idle host
	switch {
	case params[control.ParamAll] == "1":
		limit = 6 * time.Hour
	case slices.Contains([]string{control.Writer, control.Ordered, control.Node, control.Killed, control.PowerLoss, control.Encrypted, control.Replicated}, params[control.ParamScenario]):
		limit = time.Hour
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	h := newHost(params[control.ParamPort])
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
		if err != nil {
			h.report(control.Step{Name: "scenario", Error: err.Error()})
			return
		}
		err = h.post(context.Background(), control.PathDone, nil, nil)
	}()
	nodeID = cmp.Or(params[control.ParamNode], nodeID)
	s := &scenario{ctx: ctx, host: h, all: params[control.ParamAll] == "1", sameSize: params[control.ParamSameSize] == "1"}
	if expression := params[control.ParamCase]; expression != "" {
		if s.chosen, err = regexp.Compile(expression); err != nil {
			return err
		}
	}
	switch kind := params[control.ParamScenario] + " " + params[control.ParamTarget]; kind {
	case control.NVMe + " " + control.Own:
		s.target = newNVMeTarget()
		return s.nvme()
	case control.NVMe + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.nvme()
	case control.ISCSI + " " + control.Own:
		s.target = newSCSITarget()
		return s.iscsi()
	case control.ISCSI + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.iscsi()
	case control.Node + " " + control.Own:
		s.target = newNVMeTarget()
		return s.nodePlugin()
	case control.Killed + " " + control.Own:
		s.target = newNVMeTarget()
		return s.killedPlugin()
	case control.Killed + " " + control.OwnISCSI:
		s.target = newSCSITarget()
		return s.killedPlugin()
	case control.Killed + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.killedPlugin()
	case control.Killed + " " + control.SPDKISCSI:
		s.target = hostTarget{host: h, iscsi: true}
		return s.killedPlugin()
	case control.Encrypted + " " + control.Own:
		s.target = newNVMeTarget()
		return s.encryptedVolumes()
	case control.Encrypted + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.encryptedVolumes()
	case control.Encrypted + " " + control.OwnISCSI:
		s.target = newSCSITarget()
		return s.encryptedVolumes()
	case control.Node + " " + control.OwnRDMA:
		s.target = newRDMATarget()
		return s.nodePlugin()
	case control.Node + " " + control.OwnISCSI:
		s.target = newSCSITarget()
		return s.nodePlugin()
	case control.Node + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.nodePlugin()
	case control.Node + " " + control.SPDKISCSI:
		s.target = hostTarget{host: h, iscsi: true}
		return s.nodePlugin()
	case control.Restarted + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.restarted()
	case control.Copied + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.copiedElsewhere()
	case control.MovedFrom + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.movedFrom()
	case control.MovedTo + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.movedTo(params)
	case control.Authenticated + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.authenticated(params[control.ParamPhase])
	case control.Mirrored + " " + control.Own:
		return s.mirrored()
	case control.Healed + " " + control.SPDK:
		return s.healed(processServers{hostTarget{host: h}})
	case control.Healed + " " + control.Own:
		return s.healed(cutServers{newNVMeTarget(), map[string]*relay{}})
	case control.Replicated + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.replicated(params[control.ParamPhase])
	case control.PowerLoss + " " + control.Own:
		s.target = newNVMeTarget()
		return s.powerLoss(params)
	case control.Writer + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.writer()
	case control.Ordered + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.ordered()
	case control.Deleted + " " + control.SPDK:
		s.target = hostTarget{host: h}
		return s.deleted()
	default:
		return fmt.Errorf("no such scenario: %q", kind)
	}
}

func init() {
	// The tools are in the same directories as on Debian.
	os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
}
