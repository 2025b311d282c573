package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/driver/coalesce"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Loading states whether a target loads lvstores and RAIDs that hosts have written to volumes
// (see nested.go).
type Loading string

// The values of Loading.
const (
	// LoadsNothing means that the target's option bdev_auto_examine is off.
	LoadsNothing Loading = "no"
	// LoadsAccepted means that the option bdev_auto_examine is on or unknown, and that the proxy's
	// configuration accepts this.
	LoadsAccepted Loading = "accepted"
	// LoadsAll means that the option bdev_auto_examine is on.
	LoadsAll Loading = "yes"
	// LoadsUnknown means that the value of bdev_auto_examine is unknown to the proxy, or that the
	// proxy is too old to report it.
	LoadsUnknown Loading = "unknown"
)

// Loads asks the target's proxy whether the target loads lvstores and RAIDs that hosts have written
// to volumes.
func (s *Service) Loads(ctx context.Context) (Loading, error) {
	info, err := s.targetInfo(ctx)
	switch {
	case errors.Is(err, spdkrpc.MethodNotFound), notAllowed(err):
		return LoadsUnknown, nil
	case err != nil:
		return "", fmt.Errorf("target %s: find out whether the target loads what hosts write into volumes: %w", s.Name, err)
	case info.ExaminesVolumes != nil && !*info.ExaminesVolumes:
		return LoadsNothing, nil
	case info.Acknowledged:
		return LoadsAccepted, nil
	case info.ExaminesVolumes == nil:
		return LoadsUnknown, nil
	}
	return LoadsAll, nil
}

func (s *Service) targetInfo(ctx context.Context) (spdkrpc.ProxyTargetInfo, error) {
	return coalesce.Do(ctx, &s.reads, "info", s.rpc.SpdkgateTargetGetInfo)
}

// Problem describes the problem with l and a remedy. It returns "" if there is no problem.
func (l Loading) Problem() string {
	const remedy = "switch it off and restart the target, as docs/target.md says; or, if you trust everybody who can write there, set target.accept_loading_what_hosts_write in the proxy's configuration"
	switch l {
	case LoadsAll:
		return "SPDK's option bdev_auto_examine is on, so the target loads lvstores and RAIDs that hosts write into volumes, which can expose, block or destroy other volumes: " + remedy
	case LoadsUnknown:
		return "it is unknown whether SPDK's option bdev_auto_examine is on, with which the target loads the lvstores and RAIDs that hosts write into volumes: upgrade spdk-proxy, and allow the driver's role to call spdkgate_target_get_info. If the option is on, " + remedy
	}
	return ""
}

// CheckRawBlock fails with ErrLoads if the target may load an lvstore or RAID that a pod has
// written to a volume. Pods must not use the volumes of such a target as raw block devices.
func (s *Service) CheckRawBlock(ctx context.Context) error {
	l, err := s.Loads(ctx)
	if err != nil {
		return err
	}
	if p := l.Problem(); p != "" {
		return fmt.Errorf("target %s: %w: %s", s.Name, ErrLoads, p)
	}
	return nil
}

// checkHidden fails if lvstores must not be used although the proxy hides their base bdevs from the
// driver's user, as it does from a tenant's users. A proxy that supports spdkgate_target_get_info
// also hides nested lvstores from these users.
func (s *Service) checkHidden(ctx context.Context) error {
	_, err := s.targetInfo(ctx)
	if errors.Is(err, spdkrpc.MethodNotFound) || notAllowed(err) {
		return fmt.Errorf("target %s: %w: the target's proxy does not show which bdevs the lvstores are on, and is too old to hide those on logical volumes: upgrade spdk-proxy, and allow the driver's role to call spdkgate_target_get_info", s.Name, ErrNested)
	}
	return err
}
