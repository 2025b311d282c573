package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spdkgate/spdkgate/driver/connect"
)

// twoPaths tests a target with two addresses, IPv4 and IPv6. With native multipath, the kernel
// connects to both, and I/O continues when one fails. Otherwise, it connects to the first address
// that works.
func (v *volume) twoPaths(t *nvmeTarget) {
	parameter, _ := os.ReadFile("/sys/module/nvme_core/parameters/multipath")
	want := 1
	if strings.TrimSpace(string(parameter)) == "Y" {
		want = 2
	}
	v.step("target: a second address", func(context.Context) (string, error) {
		v.export.More = []connect.Address{t.secondAddress()}
		return v.export.String(), t.listen(v.name, "2")
	})
	v.twice("connect", v.connect)
	v.step("connections", controllers(want))
	v.step("write", func(context.Context) (string, error) { return "", write(v.device.Path, "raw data") })
	if want == 2 {
		v.step("target: the first address is lost", func(context.Context) (string, error) { return "", t.close(v.name, "1") })
		v.step("read at the second address", v.readRaw)
		v.step("connect again", v.connect)
		v.step("disconnect", v.disconnect)
	} else {
		v.step("disconnect", v.disconnect)
		v.step("target: the first address is lost", func(context.Context) (string, error) { return "", t.close(v.name, "1") })
	}
	v.twice("connect to the second address", v.connect)
	v.step("connection", controllers(1))
	v.step("read", v.readRaw)
	v.step("disconnect", v.disconnect)
	v.step("target: both addresses are lost", func(context.Context) (string, error) { return "", t.close(v.name, "2") })
	v.step("connect is refused", func(ctx context.Context) (string, error) {
		_, err := v.Connect(ctx, v.export)
		// nvmet listens only on ports that have subsystems.
		return refusal(err, connect.ErrUnreachable)
	})
	v.step("target: the first address is back", func(context.Context) (string, error) { return "", t.listen(v.name, "1") })
}

// controllers checks how many controllers the kernel has.
func controllers(want int) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		all, err := filepath.Glob("/sys/class/nvme/nvme*")
		if err == nil && len(all) != want {
			err = fmt.Errorf("%v, want %d", all, want)
		}
		return fmt.Sprint(len(all)), err
	}
}

func (v *volume) readRaw(context.Context) (string, error) {
	if err := write("/proc/sys/vm/drop_caches", "3"); err != nil {
		return "", err
	}
	f, err := os.Open(v.device.Path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 8)
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != "raw data" {
		return "", fmt.Errorf("read %q: %w", b, err)
	}
	return string(b), nil
}
