package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const csiUser = "bench-csi"

// A driver is spdk-csi's controller in its own process.
type driver struct {
	cmd        *exec.Cmd
	conn       *grpc.ClientConn
	controller csi.ControllerClient
	secrets    map[string]string
}

// startDriver starts a driver for the target behind p, in the proxy's directory. If program is "",
// startDriver builds the program first.
func startDriver(ctx context.Context, p *proxy, program, host, port string) (_ *driver, err error) {
	d := &driver{}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop())
		}
	}()
	path := func(name string) string { return filepath.Join(p.dir, name) }
	if program == "" {
		program = path("spdk-csi")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/spdkgate/spdkgate/cmd/spdk-csi").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build spdk-csi: %w\n%s", err, out)
		}
	}
	config, err := json.Marshal(map[string]any{"placement": map[string]any{"thinOvercommit": 1000}, "nodes": []any{map[string]any{
		"name": "bench", "rpcURL": p.url, "caFile": path("tls.crt"), "targetType": "nvme-tcp", "targetAddr": host, "targetPort": port, "lvstores": []string{volumesStore},
	}}})
	if err != nil {
		return nil, err
	}
	secret, err := json.Marshal(map[string]any{"rpcTokens": []any{map[string]any{"name": "bench", "username": csiUser, "password": password}}})
	if err != nil {
		return nil, err
	}
	d.secrets = map[string]string{"secret.json": string(secret)}
	if err := errors.Join(os.WriteFile(path("config.json"), config, 0o600), os.WriteFile(path("secret.json"), secret, 0o600)); err != nil {
		return nil, err
	}
	log, err := os.Create(path("spdk-csi.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	endpoint := "unix://" + path("csi.sock")
	d.cmd = exec.CommandContext(ctx, program, "--controller", "--endpoint", endpoint)
	d.cmd.Env = append(os.Environ(), "SPDKCSI_CONFIG="+path("config.json"), "SPDKCSI_SECRET="+path("secret.json"))
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start spdk-csi: %w", err)
	}
	if d.conn, err = grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return nil, err
	}
	d.controller = csi.NewControllerClient(d.conn)
	ready, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if _, err := csi.NewIdentityClient(d.conn).Probe(ready, &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		text, _ := os.ReadFile(path("spdk-csi.log"))
		return nil, fmt.Errorf("spdk-csi does not respond: %w\n%s", err, text)
	}
	return d, nil
}

func (d *driver) stop() error {
	var err error
	if d.conn != nil {
		err = d.conn.Close()
	}
	if d.cmd != nil && d.cmd.Process != nil {
		err = errors.Join(err, end(d.cmd))
	}
	return err
}
