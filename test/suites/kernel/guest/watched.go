package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/connect"
)

const metricsAddress = "127.0.0.1:9811"

// watched makes the kernel drop one path to a volume, and then the whole volume. It checks what the
// plugin reports, and which connections the plugin restores without being called.
func (s *scenario) watched(p *plugin) {
	s.step("restart the node plugin with a monitor", func(ctx context.Context) (string, error) {
		if err := p.stop(unix.SIGTERM); err != nil {
			return "", err
		}
		p.args = []string{"--node-health-interval=1s", "--metrics-address=" + metricsAddress}
		return "", p.start(ctx, false)
	})
	v := s.newCSIVolume(p, "watched", 32*mib, "ext4")
	var paths [2]*relay
	v.step("two paths", func(context.Context) (_ string, err error) {
		var list []connect.Address
		for i := range paths {
			if paths[i], err = newRelay(v.context[connect.KeyTargetAddr] + ":" + v.context[connect.KeyTargetPort]); err != nil {
				return "", err
			}
			list = append(list, connect.Address{Addr: "127.0.0.1", Port: paths[i].port()})
		}
		v.context[connect.KeyTargetAddrs] = connect.FormatAddresses(list)
		v.context["reconnect_delay"], v.context["ctrl_loss_tmo"] = "1", "3"
		return v.context[connect.KeyTargetAddrs], nil
	})
	v.step("stage", v.stage)
	v.step("publish", v.publish)
	v.step("write", v.write)
	health := func(name string, want ...string) {
		v.step(name, func(ctx context.Context) (string, error) { return "", v.healthBecomes(ctx, want) })
	}
	states := func(name string, want ...string) {
		v.step(name, func(ctx context.Context) (string, error) {
			return "", statesBecome(ctx, v.context[connect.KeyNQN], want)
		})
	}
	health("the volume is well")

	v.step("one path is lost", func(context.Context) (string, error) { paths[0].set(refuses); return "", nil })
	states("the kernel gives it up", "live")
	health("that is reported", "DEGRADED PathsLost")
	v.step("it is back", func(context.Context) (string, error) { paths[0].set(whole); return "", nil })
	states("the plugin restores it", "live", "live")
	health("the volume is well")
	v.step("read", v.read)

	var used *os.File
	v.step("a process keeps a file open", func(context.Context) (_ string, err error) { used, err = os.Open(v.file()); return "", err })
	v.step("both paths are lost", func(context.Context) (string, error) {
		paths[0].set(refuses)
		paths[1].set(refuses)
		return "", nil
	})
	states("the kernel removes the device")
	health("that is reported", "INACCESSIBLE DeviceGone", "INACCESSIBLE NotConnected")
	v.step("both are back", func(context.Context) (string, error) { paths[0].set(whole); paths[1].set(whole); return "", nil })
	states("the plugin connects the volume", "live", "live")
	health("the mounts are dead", "INACCESSIBLE DeviceGone")
	first := v.published
	v.published += "-2"
	v.step("a second pod gets the volume", v.publish)
	v.step("read", v.read)
	v.published = first
	v.step("unpublish the first pod, whose file is still open", v.unpublish)
	v.step("the log has the proof that its device is gone", func(context.Context) (string, error) {
		return "", logHas("detaching a mount that is in use", "does not exist, while /sys/dev/block lists")
	})
	v.step("the process ends", func(context.Context) (string, error) { return "", used.Close() })
	health("the volume is well")
	v.step("metrics", func(ctx context.Context) (string, error) {
		return "", scrapeHas(ctx, `spdk_csi_node_volume_state{state="ok",target="",volume="`+v.id+`"} 1`,
			`spdk_csi_node_volume_paths_live{target="",volume="`+v.id+`"} 2`)
	})
	v.published += "-2"
	v.step("unpublish the second pod", v.unpublish)
	v.published = first
	v.step("unstage", v.unstage)
	v.step("nothing is left", v.gone)
	for _, r := range paths {
		_ = r.Close()
	}
	v.delete()
	s.step("restart the node plugin without a monitor", func(ctx context.Context) (string, error) {
		if err := p.stop(unix.SIGTERM); err != nil {
			return "", err
		}
		p.args = nil
		return "", p.start(ctx, false)
	})
}

// healthBecomes waits until NodeGetVolumeHealth reports exactly these problems, each as "STATUS
// Reason".
func (v *csiVolume) healthBecomes(ctx context.Context, want []string) error {
	for tick := time.Tick(100 * time.Millisecond); ; {
		resp, err := v.NodeGetVolumeHealth(ctx, &csi.NodeGetVolumeHealthRequest{VolumeId: v.id, StagingTargetPath: v.staging})
		if err != nil {
			return err
		}
		var found, texts []string
		for _, h := range resp.GetVolumeHealth().GetHealthStatuses() {
			found = append(found, h.GetStatus().String()+" "+h.GetReason())
			texts = append(texts, h.GetMessage())
		}
		slices.Sort(found)
		if slices.Equal(found, want) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the health is %v (%s): %w", found, strings.Join(texts, "; "), ctx.Err())
		case <-tick:
		}
	}
}

// logHas checks that a line in the plugin's log contains all of these texts.
func logHas(texts ...string) error {
	log, err := os.ReadFile(filepath.Clean(pluginLog))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(log)) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			return nil
		}
	}
	return fmt.Errorf("no line in the plugin's log contains %q", texts)
}

// scrapeHas waits until the plugin's metrics contain these lines.
func scrapeHas(ctx context.Context, lines ...string) error {
	for tick := time.Tick(100 * time.Millisecond); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddress+"/metrics", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.Contains(string(text), "\n"+l+"\n") })
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the metrics lack %q: %w", missing, ctx.Err())
		case <-tick:
		}
	}
}
