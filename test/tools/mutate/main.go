// Command mutate measures how many faults the tests detect. It changes one token at a time, in a
// seeded sample of places. For each change, it runs the changed package's short tests, then those
// of the packages named by -importers that depend on the changed one, and then all tests of the
// changed package. Short tests are run only if they execute the changed line. At the end, it lists
// the changes with which all tests passed.
//
//	go run ./test/tools/mutate -n 100 -seed 1 -importers ./driver/... ./driver/...
//
// Each test binary is built only once. A binary contains all changes in the sample, and a variable
// selects one of them. Tests of several packages run at the same time, but those of one package do
// not. Nothing is written to the source tree: the go command gets the changed files as an overlay.
// Examine each of these changes: either it makes no difference to users, or a test is missing.
// Without any change, the tests of each package must pass.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
)

type options struct {
	n         int
	seed      uint64
	timeout   time.Duration
	short     bool
	parallel  int
	importers string
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 100, "number of changes to try")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the sample: the same seed on the same source gives the same sample")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "time after which the short tests of a package count as hung because of the change")
	flag.BoolVar(&o.short, "short", false, "run only the short tests; try the survivors with the long tests by hand")
	flag.IntVar(&o.parallel, "parallel", runtime.GOMAXPROCS(0), "number of packages whose tests run at the same time")
	flag.StringVar(&o.importers, "importers", "", "packages, separated by commas, whose short tests are also tried: ./driver/...,./cmd/spdk-csi")
	least := flag.Int("least", 0, "fail if fewer percent are detected")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = []string{"./driver/...", "./lvstore/...", "./proxy/..."}
	}
	percent, err := run(ctx, patterns, o)
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
func run(ctx context.Context, patterns []string, o options) (percent int, err error) {
	dir, err := openDir("")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	all, err := sample(ctx, dir, patterns, o)
	if err != nil {
		return 0, err
	}
	suites, err := newSuites(ctx, dir, all, o.importers)
	if err != nil {
		return 0, err
	}
	counts, survivors, err := tryAll(ctx, suites, all, o)
	if err != nil {
		return 0, err
	}
	percent = 100 * (len(all) - len(survivors)) / len(all)
	fmt.Printf("seed %d: of %d changes, %d were detected, %d made a test hang, %d survived: %d %% detected\n",
		o.seed, len(all), counts[killed], counts[hung], counts[survived], percent)
	slices.SortFunc(survivors, mutant.compare)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, m := range survivors {
		fmt.Fprintf(w, "survived\t%s\t%s\n", m.place(), m.what())
	}
	return percent, w.Flush()
}

// sample returns n mutants that compile.
func sample(ctx context.Context, dir string, patterns []string, o options) (valid []mutant, err error) {
	packages, err := load(ctx, patterns)
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, p := range packages {
		found, err := mutants(p)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	random := rand.New(rand.NewPCG(o.seed, o.seed))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i := range all {
		all[i].number = i + 1
	}
	// Another mutant replaces one that does not compile.
	for len(valid) < o.n && len(all) > 0 {
		next := min(len(all), o.n-len(valid)+o.n/4)
		found, err := compilable(ctx, dir, slices.Clone(all[:next]))
		if err != nil {
			return nil, err
		}
		valid, all = append(valid, found...), all[next:]
	}
	if len(valid) == 0 {
		return nil, fmt.Errorf("nothing to change in %q: name packages that have tests", patterns)
	}
	return valid[:min(o.n, len(valid))], nil
}

// newSuites returns the suites that can detect a mutant, by the import path of the mutant's
// package. The package's own suite comes first.
func newSuites(ctx context.Context, dir string, all []mutant, importers string) (map[string][]*suite, error) {
	overlay, _, err := writeOverlay(dir, all)
	if err != nil {
		return nil, err
	}
	var packages []pkg
	for _, m := range all {
		packages = append(packages, m.pkg)
	}
	if importers != "" {
		more, err := load(ctx, strings.Split(importers, ","))
		if err != nil {
			return nil, err
		}
		packages = append(packages, more...)
	}
	var changed []string
	for _, m := range all {
		changed = append(changed, m.pkg.ImportPath)
	}
	slices.Sort(changed)
	changed = slices.Compact(changed)
	byPackage, seen := map[string][]*suite{}, map[string]bool{}
	for _, p := range packages {
		if seen[p.ImportPath] {
			continue
		}
		seen[p.ImportPath] = true
		s := &suite{pkg: p, dir: dir, overlay: overlay, changed: changed}
		for _, c := range changed {
			switch {
			case c == p.ImportPath:
				byPackage[c] = slices.Insert(byPackage[c], 0, s)
			case slices.Contains(p.Deps, c):
				byPackage[c] = append(byPackage[c], s)
			}
		}
	}
	return byPackage, nil
}

// tryAll tries all mutants, several at a time, and prints each result.
func tryAll(ctx context.Context, suites map[string][]*suite, all []mutant, o options) (counts map[verdict]int, survivors []mutant, err error) {
	var mu sync.Mutex
	counts = map[verdict]int{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(o.parallel, 1))
	for _, m := range all {
		g.Go(func() error {
			v, test, err := try(ctx, suites[m.pkg.ImportPath], m, o)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if counts[v]++; v == survived {
				survivors = append(survivors, m)
			}
			fmt.Fprintf(os.Stderr, "%3d of %d  %-8s %s  %s\n", counts[killed]+counts[hung]+counts[survived], len(all), v, m, test)
			return nil
		})
	}
	return counts, survivors, g.Wait()
}

// try runs the tests of the suites until one fails.
func try(ctx context.Context, suites []*suite, m mutant, o options) (v verdict, test string, err error) {
	for _, s := range suites {
		if v, test, err = s.try(ctx, m, o.timeout, false); err != nil || v != survived {
			return v, test, err
		}
	}
	if own := suites[0]; !o.short && own.hasLongTests() {
		return own.try(ctx, m, o.timeout, true)
	}
	return survived, "", ctx.Err()
}
