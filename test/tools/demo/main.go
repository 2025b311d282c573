// Command demo shows the whole life of a volume with the real spdk-proxy and the real spdk-csi, on
// a simulated SPDK target that stores real data. Every step uses CSI over gRPC and the proxy over
// HTTPS, and prints what it has proved. `make demo` builds the demo and the two programs in the
// same directory.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	keep := flag.Bool("keep", false, "leave everything running afterwards, and print commands to try")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: make demo [ARGS=--keep]\n\nRuns a volume's whole life on a simulated SPDK target.")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, keep bool) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "spdkgate-demo-")
	if err != nil {
		return err
	}
	w := &testbed{dir: dir, bin: filepath.Dir(self)}
	info, _ := os.Stdout.Stat()
	r := &report{out: os.Stdout, started: time.Now(), color: info != nil && info.Mode()&os.ModeCharDevice != 0}
	d := &demo{testbed: w, report: r}
	defer func() {
		if err != nil {
			d.abandon(ctx)
			err = fmt.Errorf("%w\nthe logs are in %s", err, dir)
			return
		}
		if err = w.stop(); err == nil {
			err = os.RemoveAll(dir)
		}
	}()
	if err := d.setUp(ctx); err != nil {
		return err
	}
	if err := d.life(ctx); err != nil {
		return err
	}
	facts, err := d.facts()
	if err != nil {
		return err
	}
	r.summary(facts...)
	if keep {
		fmt.Print(w.instructions())
		<-ctx.Done()
		fmt.Println("\nstopping")
	}
	return nil
}

// abandon cleans up after a failure, so that no mount, loop device or process is left behind.
func (d *demo) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if d.conn != nil {
		if _, err := d.remove(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "demo: clean up:", err)
		}
	}
	if err := d.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "demo: stop:", err)
	}
}
