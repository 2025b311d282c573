package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// parallel stages and unstages many volumes concurrently, several times. The first round formats
// the volumes.
func (s *scenario) parallel(p *plugin) {
	const count = 50
	rounds := 2
	if s.all {
		rounds = 100
	}
	s.limit = 20 * time.Minute // long enough for a busy host
	defer func() { s.limit = 0 }()
	volumes := make([]*csiVolume, count)
	together := func(name string, do func(*csiVolume) func(context.Context) (string, error)) time.Duration {
		start := time.Now()
		s.step(name, func(ctx context.Context) (string, error) {
			g, ctx := errgroup.WithContext(ctx)
			for _, v := range volumes {
				g.Go(func() error {
					if _, err := do(v)(ctx); err != nil {
						return fmt.Errorf("%s: %w", v.name, err)
					}
					return nil
				})
			}
			return "", g.Wait()
		})
		return time.Since(start)
	}
	s.step(fmt.Sprintf("target: create %d volumes", count), func(ctx context.Context) (string, error) {
		for i := range volumes {
			name := fmt.Sprintf("parallel-%d", i)
			volumes[i] = &csiVolume{scenario: s, plugin: p, pod: podOf(name), name: name, id: "t0:" + name, fsType: "ext4"}
			if err := volumes[i].create(ctx, 8*mib); err != nil {
				return "", err
			}
		}
		return "", nil
	})
	var first, slowest, all time.Duration
	for round := range rounds {
		stage := together(fmt.Sprintf("round %d: stage", round+1), callStage)
		together(fmt.Sprintf("round %d: publish", round+1), callPublish)
		together(fmt.Sprintf("round %d: unpublish", round+1), callUnpublish)
		unstage := together(fmt.Sprintf("round %d: unstage", round+1), callUnstage)
		together(fmt.Sprintf("round %d: nothing is left", round+1), callGone)
		if round == 0 {
			first = stage
			continue
		}
		all += stage + unstage
		slowest = max(slowest, stage)
	}
	s.step("target: remove the volumes", func(ctx context.Context) (string, error) {
		for _, v := range volumes {
			if err := v.target.remove(ctx, v.name); err != nil {
				return "", err
			}
		}
		s.figures = fmt.Sprintf("%d volumes, %d rounds: stage with mkfs %.1f s, slowest stage without %.1f s, stage and unstage %.1f s on average",
			count, rounds, first.Seconds(), slowest.Seconds(), all.Seconds()/float64(max(1, rounds-1)))
		return s.figures, nil
	})
}
