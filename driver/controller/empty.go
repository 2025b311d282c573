package controller

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// createEmpty creates an empty volume, or finds the volume that an earlier call created. Before the
// volume is created, createEmpty queries each target that may contain a volume with this name.
func (c *Controller) createEmpty(ctx context.Context, n creation) (located, error) {
	asked, candidates, err := c.targetsFor(n.spec.Name, n.spec.Class, n.where, n.shared)
	if err != nil {
		return located{}, err
	}
	services, err := c.openTargets(asked, n.secrets, provisionerSecret)
	if err != nil {
		return located{}, err
	}
	var found surveyed
	var forRawBlock []placement.Target
	var unsuitable error
	asking, askCtx := errgroup.WithContext(ctx)
	asking.Go(func() (err error) {
		found, err = c.survey(askCtx, services, n.spec)
		return err
	})
	if n.rawBlock {
		asking.Go(func() error {
			forRawBlock, unsuitable = suitForRawBlock(askCtx, services, candidates)
			return nil // an unsuitable class matters only if the volume does not exist
		})
	}
	if err := asking.Wait(); err != nil {
		return located{}, err
	}
	made, err := found.only(n.spec.Name)
	if err == nil {
		return made, made.target.Matches(ctx, made.Volume, n.spec, volume.Origin{})
	}
	if !errors.Is(err, volume.ErrNotFound) {
		return located{}, err
	}
	if n.rawBlock {
		if unsuitable != nil {
			return located{}, unsuitable
		}
		candidates = forRawBlock
	}
	return found.createInFirst(ctx, candidates, n.spec, n.where)
}

// targetsFor returns the targets to query for a volume with this name, and the targets on which the
// volume may be created.
func (c *Controller) targetsFor(name string, wanted class.Class, where placement.Accessibility, shared bool) (asked, candidates []placement.Target, err error) {
	allowed, err := c.allowedTargets(wanted, shared)
	if err != nil {
		return nil, nil, err
	}
	asked, candidates = c.targets.choice.Of(allowed, name)
	if candidates, err = where.Filter(candidates); err != nil {
		return nil, nil, err
	}
	// csi-provisioner retries a call with the same topologies until the call is refused, and a
	// refused call has created nothing in them. The controller therefore need not query targets in
	// other topologies.
	asked, err = where.Filter(asked)
	return asked, candidates, err
}

// allowedTargets returns the targets on which volumes of a class can be created. If shared is set,
// they must support volumes for several nodes.
func (c *Controller) allowedTargets(wanted class.Class, shared bool) ([]placement.Target, error) {
	allowed, err := placement.Targets(c.targets.placement, wanted)
	if err != nil {
		return nil, err
	}
	var able []placement.Target
	for _, t := range allowed {
		err = nil
		if shared {
			err = c.targets.byName[t.Name].CheckShareable()
		}
		if err == nil {
			err = c.targets.checkAuthenticates(t.Name, wanted.Authentication)
		}
		if err == nil {
			able = append(able, t)
		}
	}
	if len(able) == 0 {
		return nil, err
	}
	return able, nil
}
