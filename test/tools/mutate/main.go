// Command mutate measures how many faults the tests detect. It changes one token at a time in a
// seeded sample of places. It runs the changed package's short tests, and all its tests if no short
// one failed. It lists the changes with which all tests passed. With -importers, it also runs the
// short tests of the importing packages that execute the changed line.
//
//	go run ./test/tools/mutate -n 100 -seed 1 ./driver/...
//
// It writes nothing into the source tree: the go command gets the changed file as an overlay. Read
// each survivor: either the change makes no difference to users, or a test is missing. Without any
// change, the tests of each package must pass.
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
	n := flag.Int("n", 100, "number of changes to try")
	seed := flag.Uint64("seed", 1, "seed of the sample: the same seed on the same source gives the same sample")
	workers := flag.Int("workers", 2, "number of packages to test at a time")
	timeout := flag.Duration("timeout", 5*time.Minute, "time after which a test counts as hung because of the change")
	short := flag.Bool("short", false, "run only the short tests; try the survivors with the long tests by hand")
	importers := flag.Bool("importers", false, "try the survivors with the short tests of the importing packages that execute the changed line")
	least := flag.Int("least", 0, "fail if fewer percent are detected")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./driver/...", "./lvstore/...", "./proxy/..."}
	}
	percent, err := run(ctx, patterns, *n, *seed, *workers, *timeout, *short, *importers)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
	if percent < *least {
		fmt.Fprintf(os.Stderr, "mutate: the tests detect %d %% of the changes, but must detect %d %%\n", percent, *least)
		os.Exit(1)
	}
}

// run tries a sample and prints the results.
func run(ctx context.Context, patterns []string, n int, seed uint64, workers int, timeout time.Duration, short, importers bool) (percent int, err error) {
	packages, err := load(ctx, patterns)
	if err != nil {
		return 0, err
	}
	if importers {
		if err := addImporters(ctx, packages); err != nil {
			return 0, err
		}
	}
	var all []mutant
	for i := range packages {
		packages[i].short = short
		found, err := mutants(packages[i])
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
	// A change that does not compile does not count: another place replaces it.
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
			fmt.Fprintf(os.Stderr, "%3d of %d  %-8s %s  %s\n", tried+1, n, r.verdict, r.mutant, r.test)
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
	fmt.Printf("seed %d: of %d changes, %d were detected, %d made a test hang, %d survived: %d %% detected (%d places in all)\n",
		seed, tried, counts[killed], counts[hung], counts[survived], percent, len(all))
	slices.SortFunc(survivors, func(a, b result) int { return a.mutant.compare(b.mutant) })
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, s := range survivors {
		fmt.Fprintf(w, "survived\t%s\t%s\n", s.mutant.place(), s.mutant.what())
	}
	return percent, w.Flush()
}
