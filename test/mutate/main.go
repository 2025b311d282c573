// Command mutate tells how much the tests notice: it changes one token at a time in a
// seeded sample of places, runs the tests of the package that the place is in, and
// lists the changes that no test minded.
//
//	go run ./test/mutate -n 100 -seed 1 ./driver/...
//
// Nothing is written into the tree: the go command is given the changed file as an
// overlay. A survivor is to be read: either the change makes no difference to anybody,
// or a test is missing. The tests of a package must pass without any change first.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	n := flag.Int("n", 100, "how many changes are tried")
	seed := flag.Uint64("seed", 1, "which sample: the same seed on the same source is the same sample")
	workers := flag.Int("workers", 2, "how many packages are tested at a time")
	timeout := flag.Duration("timeout", 5*time.Minute, "after which a test is taken to hang because of the change")
	least := flag.Int("least", 0, "fail if fewer percent are killed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./driver/...", "./proxy/..."}
	}
	percent, err := run(ctx, patterns, *n, *seed, *workers, *timeout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
	if percent < *least {
		fmt.Fprintf(os.Stderr, "mutate: %d %% are killed, %d %% should be\n", percent, *least)
		os.Exit(1)
	}
}

// run tries a sample and prints what became of it.
func run(ctx context.Context, patterns []string, n int, seed uint64, workers int, timeout time.Duration) (percent int, err error) {
	packages, err := load(ctx, patterns)
	if err != nil {
		return 0, err
	}
	var all []mutant
	for _, p := range packages {
		found, err := mutants(p)
		if err != nil {
			return 0, err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return 0, fmt.Errorf("nothing to change in %q: name packages that have tests", patterns)
	}
	random := rand.New(rand.NewPCG(seed, seed))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	// What does not compile is no change that somebody could make by mistake, so another place takes its turn.
	results := make(chan result)
	queue := make(chan mutant)
	sound := map[string]func() error{} // by package; the first mutant of each waits for it
	for _, p := range packages {
		sound[p.ImportPath] = sync.OnceValue(func() error { return p.sound(ctx, timeout) })
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for m := range queue {
				if err := sound[m.pkg.ImportPath](); err != nil {
					results <- result{mutant: m, err: err}
					continue
				}
				results <- m.try(ctx, timeout)
			}
		})
	}
	go func() {
		defer close(queue)
		for _, m := range all {
			select {
			case queue <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() { working.Wait(); close(results) }()

	counts := map[verdict]int{}
	var survivors []result
	for r := range results {
		tried := counts[killed] + counts[hung] + counts[survived]
		if ctx.Err() != nil || tried == n {
			continue
		}
		if r.err != nil {
			return 0, r.err
		}
		counts[r.verdict]++
		if r.verdict == survived {
			survivors = append(survivors, r)
		}
		if r.verdict != invalid {
			fmt.Fprintf(os.Stderr, "%3d of %d  %-8s %s\n", tried+1, n, r.verdict, r.mutant)
		}
		if counts[killed]+counts[hung]+counts[survived] == n {
			cancel()
		}
	}
	tried := counts[killed] + counts[hung] + counts[survived]
	if tried == 0 {
		return 0, context.Cause(ctx)
	}
	percent = 100 * (tried - counts[survived]) / tried
	fmt.Printf("seed %d: of %d changes %d were killed, %d made a test hang, %d survived: %d %% noticed (%d places in all)\n",
		seed, tried, counts[killed], counts[hung], counts[survived], percent, len(all))
	slices.SortFunc(survivors, func(a, b result) int { return a.mutant.compare(b.mutant) })
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, s := range survivors {
		fmt.Fprintf(w, "survived\t%s\t%s\n", s.mutant.place(), s.mutant.what())
	}
	return percent, w.Flush()
}
