//go:build kubernetes

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spdkgate/spdkgate/test/suites/e2e/artifacts"
	"github.com/spdkgate/spdkgate/test/suites/e2e/cluster"
	"github.com/spdkgate/spdkgate/test/suites/e2e/sandbox"
)

var (
	keep     = flag.Bool("keep", false, "when the tests have ended, keep the cluster until Ctrl-C")
	logs     = flag.String("logs", "", "directory for the logs of all processes and pods")
	parallel = flag.Int("compilers", 2, "number of concurrent compilers when Kubernetes is built")
)

// The tests synchronize with each other: see parallelNamespace.
const testsAtOnce = "1000"

var begin = time.Now()

// progress prints a line with the seconds since the start of this process.
func progress(format string, args ...any) {
	fmt.Printf("%6.1f s  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
}

func TestMain(m *testing.M) {
	dir, inside := sandbox.Inside()
	flag.Parse()
	run := outside
	switch {
	case inside:
		run = func() (int, error) { return runInside(dir, m) }
	case flag.Lookup("test.list").Value.String() != "":
		run = func() (int, error) { return m.Run(), nil }
	}
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "test-k8s:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// outside runs outside the sandbox. It builds the programs for the cluster and runs the tests in a
// sandbox.
func outside() (code int, err error) {
	if os.Getuid() != 0 {
		return 1, errors.New("the tests on Kubernetes need root, for namespaces, mounts and loop devices")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	store, err := artifacts.Open(progress)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	b, err := buildAll(ctx, store)
	if err != nil {
		return 1, err
	}
	o := sandbox.Options{
		Parent: "/var/tmp", Name: "spdkgate-e2e", LoopDir: storageFolder, Log: progress,
		// kubelet sets these kernel settings for the whole machine.
		Sysctls: []string{
			"vm.overcommit_memory", "vm.panic_on_oom", "kernel.panic", "kernel.panic_on_oops", "kernel.keys.root_maxkeys", "kernel.keys.root_maxbytes",
		},
		Prepare: func(dir string) error { return b.write(filepath.Join(dir, buildFile)) },
	}
	if *logs != "" {
		o.Saved, o.Keep = "logs", *logs
	}
	code, err = sandbox.Run(ctx, o)
	progress("end")
	return code, err
}

// runInside starts the storage server and the cluster, and runs the tests.
func runInside(dir string, m *testing.M) (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	if !*keep { // the cluster's processes end with ctx
		ctx, cancel = context.WithTimeout(context.Background(), time.Hour)
	}
	defer cancel()
	b, err := readBuilt(filepath.Join(dir, buildFile))
	if err != nil {
		return 1, err
	}
	begin = b.Begin
	progress("in the sandbox: %s", dir)
	if err := start(ctx, dir, b); err != nil {
		collectLogs(ctx)
		return 1, err
	}
	if err := flag.Set("test.parallel", testsAtOnce); err != nil {
		return 1, err
	}
	code := m.Run()
	check := func(name, proof string, err error) {
		if err != nil {
			code = 1
			results.add(&result{name: name, outcome: "FAILED", proof: err.Error()})
			return
		}
		results.add(&result{name: name, outcome: "passed", proof: proof})
	}
	check("namespaces", "the namespaces of all tests are deleted, with their volumes", deletions.Wait())
	check("nothing left", "no PersistentVolume, VolumeAttachment, snapshot content, lvol, export, mount or loop device after all tests", eventually(ctx, nothingLeft))
	collectLogs(ctx)
	if !*keep && !env.driver.uninstalled {
		check("uninstall", "helm uninstall leaves no object and no registration of the driver", env.driver.uninstall(ctx))
	}
	results.print(os.Stdout)
	if *keep {
		progress("kept until Ctrl-C. In another terminal: nsenter --all --target PID env KUBECONFIG=%s %s get pods -A", env.cluster.Kubeconfig(), b.Programs["kubectl"])
		<-ctx.Done()
	}
	return code, nil
}

// An environment contains what the tests use: the driver and the cluster.
type environment struct {
	cluster *cluster.Cluster
	driver  *driver
	suite   string // path of Kubernetes' own tests, if they are to be run
}

var env environment
