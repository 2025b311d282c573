package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

// A controller is spdk-csi in its own process, with its own credentials.
type controller struct {
	csi.ControllerClient
	cmd  *exec.Cmd
	conn *grpc.ClientConn
	dir  string   // contains the program
	env  []string // names the configuration files

	mu      sync.Mutex
	created map[string]string // ids by name
}

func startController(ctx context.Context, w *testbed) (_ *controller, err error) {
	c := &controller{created: map[string]string{}, dir: w.dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	path := func(name string) string { return filepath.Join(w.dir, name) }
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path("spdk-csi"), "github.com/spdkgate/spdkgate/cmd/spdk-csi").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build spdk-csi: %w\n%s", err, out)
	}
	log, err := os.Create(path("spdk-csi.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	endpoint := "unix://" + path("csi.sock")
	c.cmd = exec.CommandContext(ctx, path("spdk-csi"), "--controller", "--endpoint", endpoint)
	c.env = []string{"SPDKCSI_CONFIG=" + path("config.json"), "SPDKCSI_SECRET=" + path("secret.json")}
	c.cmd.Env = append(os.Environ(), c.env...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start spdk-csi: %w", err)
	}
	if c.conn, err = grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return nil, err
	}
	c.ControllerClient = csi.NewControllerClient(c.conn)
	ready, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if _, err := csi.NewIdentityClient(c.conn).Probe(ready, &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		text, _ := os.ReadFile(path("spdk-csi.log"))
		return nil, fmt.Errorf("spdk-csi does not respond: %w\n%s", err, text)
	}
	return c, nil
}

func (c *controller) stop() error {
	var err error
	if c.conn != nil {
		err = c.conn.Close()
	}
	if c.cmd != nil && c.cmd.Process != nil {
		err = errors.Join(err, c.cmd.Process.Signal(syscall.SIGTERM), c.cmd.Wait())
	}
	return err
}

var capability = &csi.VolumeCapability{
	AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
}

// id returns the id of a created volume.
func (c *controller) id(kind string, i int) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.created[fmt.Sprintf("pvc-%s-%d", kind, i)]
	if id == "" {
		return "", errors.New("not created")
	}
	return id, nil
}

// create returns a call that creates the volume with the given number.
func (c *controller) create(kind string) func(context.Context, int) (string, error) {
	return func(ctx context.Context, i int) (string, error) {
		name := fmt.Sprintf("pvc-%s-%d", kind, i)
		resp, err := c.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 4 << 20},
			VolumeCapabilities: []*csi.VolumeCapability{capability},
		})
		if err != nil {
			return "", err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.created[name] = resp.GetVolume().GetVolumeId()
		return "", nil
	}
}

func (c *controller) delete(kind string) func(context.Context, int) (string, error) {
	return func(ctx context.Context, i int) (string, error) {
		id, err := c.id(kind, i)
		if err == nil {
			_, err = c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
		}
		return "", err
	}
}

func (c *controller) capacity(ctx context.Context, _ int) (string, error) {
	resp, err := c.GetCapacity(ctx, &csi.GetCapacityRequest{})
	return fmt.Sprintf("%d GiB", resp.GetAvailableCapacity()>>30), err
}

// list lists all volumes in pages, as csi-attacher does.
func (c *controller) list(ctx context.Context, _ int) (string, error) {
	const page = 10_000 // --max-entries in deploy/kubernetes/controller.yaml
	volumes, published, largest := 0, 0, 0
	for token := ""; ; {
		resp, err := c.ListVolumes(ctx, &csi.ListVolumesRequest{MaxEntries: page, StartingToken: token})
		if err != nil {
			return "", err
		}
		volumes, largest = volumes+len(resp.GetEntries()), max(largest, proto.Size(resp))
		for _, e := range resp.GetEntries() {
			published += len(e.GetStatus().GetPublishedNodeIds())
		}
		if token = resp.GetNextToken(); token == "" {
			return fmt.Sprintf("%d volumes, %d publications, pages of up to %.1f MiB", volumes, published, float64(largest)/(1<<20)), nil
		}
	}
}

// rssMiB returns the controller's resident memory.
func (c *controller) rssMiB() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.Atoi(fields[0])
	return kib >> 10
}

// cpu returns the CPU time that the controller has used.
func (c *controller) cpu() time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 on every Linux
}
