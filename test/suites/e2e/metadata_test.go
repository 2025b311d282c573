//go:build kubernetes

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/test/suites/e2e/cluster"
)

// csi-snapshot-metadata uses these names.
const (
	metadataSecret  = "spdkcsi-snapshot-metadata-tls"
	metadataService = "spdkcsi-snapshot-metadata"
	metadataHost    = metadataService + "." + driverNamespace // in the certificate
	metadataPort    = "6443"

	backupTool  = "backuptool" // a program; see its package
	backupImage = "docker.io/spdkgate/" + backupTool + ":e2e"

	installTool  = "golang"
	installImage = "docker.io/library/golang:1.25.7" // as Kubernetes' test of SnapshotMetadata names it
)

const backupPage = "docs/backup-volumes.md"

// pageCommand returns the command on the manual's page about backups that begins with the given
// words.
func pageCommand(words string) (string, error) {
	text, err := os.ReadFile(filepath.Join(repository, backupPage))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, words) {
			return line, nil
		}
	}
	return "", fmt.Errorf("%s has no command that begins with %q", backupPage, words)
}

// pageShell runs a command from the page in the directory for csi-snapshot-metadata's files.
func (d *driver) pageShell(ctx context.Context, words string) error {
	command, err := pageCommand(words)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sh", "-ec", command)
	cmd.Dir = d.metadataDir()
	cmd.Env = []string{"HOME=" + cmd.Dir, "PATH=" + d.programs + ":" + os.Getenv("PATH"), "KUBECONFIG=" + env.cluster.Kubeconfig()}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return nil
}

func (d *driver) metadataDir() string { return filepath.Join(d.dir, "snapshot-metadata") }

// prepareSnapshotMetadata installs the CRD and creates the certificate, as described on the page.
func (d *driver) prepareSnapshotMetadata(ctx context.Context, b built) error {
	// On the page, the user downloads the CRD from the sidecar's repository.
	crd := filepath.Join(b.Modules[metadataCRD], "config/crd/cbt.storage.k8s.io_snapshotmetadataservices.yaml")
	if _, err := d.kubectl.Run(ctx, "", "apply", "--filename", crd); err != nil {
		return err
	}
	if err := os.MkdirAll(d.metadataDir(), 0o700); err != nil {
		return err
	}
	if err := d.pageShell(ctx, "openssl req"); err != nil {
		return err
	}
	certificate, err := os.ReadFile(filepath.Join(d.metadataDir(), "tls.crt"))
	d.metadataCA = string(certificate)
	return err
}

// createMetadataSecret creates the namespace and the Secret before the chart is installed.
func (d *driver) createMetadataSecret(ctx context.Context) error {
	kubectl := env.cluster.Kubectl()
	for _, object := range []string{"namespace/" + driverNamespace, "secret/" + metadataSecret} {
		kind, name, _ := strings.Cut(object, "/")
		found, err := kubectl.In(driverNamespace).Run(ctx, "", "get", kind, name, "--ignore-not-found", "--output=name")
		if err != nil {
			return err
		}
		switch {
		case found != "":
		case kind == "namespace":
			if _, err := kubectl.Run(ctx, "", "create", "namespace", name); err != nil {
				return err
			}
		default:
			if err := d.pageShell(ctx, "kubectl -n spdkcsi create secret tls "+metadataSecret); err != nil {
				return err
			}
		}
	}
	return nil
}

// serveMetadataService replaces kube-proxy and a DNS server for the Service of
// csi-snapshot-metadata, so that pods can resolve its name and connect to a ready pod.
func (n *namespace) serveMetadataService() {
	n.t.Helper()
	address := env.run(n.t, "get", "service", metadataService, "--output=jsonpath={.spec.clusterIP}")
	require.NoError(n.t, exec.Command("ip", "address", "add", address+"/32", "dev", "lo").Run())
	listener, err := net.Listen("tcp", net.JoinHostPort(address, metadataPort))
	require.NoError(n.t, err)
	names, err := net.ListenPacket("udp", net.JoinHostPort(cluster.Address, "53"))
	require.NoError(n.t, err)
	var connections errgroup.Group
	n.t.Cleanup(func() {
		require.NoError(n.t, errors.Join(listener.Close(), names.Close()))
		require.NoError(n.t, exec.Command("ip", "address", "delete", address+"/32", "dev", "lo").Run())
		require.NoError(n.t, connections.Wait())
	})
	connections.Go(func() error { return answer(names, metadataHost, net.ParseIP(address)) })
	connections.Go(func() error {
		for {
			c, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			if err != nil {
				return err
			}
			connections.Go(func() error { return forward(context.Background(), c) })
		}
	})
}

// answer responds to the pods' DNS queries. It returns the address for the given name, and an error
// for all other names.
func answer(conn net.PacketConn, name string, address net.IP) error {
	const header = 12 // bytes
	packet := make([]byte, 512)
	for {
		size, from, err := conn.ReadFrom(packet)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		var asked []string
		at := header
		for at < size && packet[at] != 0 && at+1+int(packet[at]) < size {
			asked = append(asked, string(packet[at+1:at+1+int(packet[at])]))
			at += 1 + int(packet[at])
		}
		if at += 5; at > size { // the end of the name, type and class
			continue
		}
		known, forIPv4 := strings.EqualFold(strings.Join(asked, "."), name), packet[at-3] == 1
		reply := append([]byte{packet[0], packet[1], 0x85, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, packet[header:at]...)
		switch {
		case !known:
			reply[3] |= 3 // no such name
		case forIPv4:
			reply[7] = 1
			reply = append(append(reply, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 5, 0, net.IPv4len), address.To4()...)
		}
		if _, err := conn.WriteTo(reply, from); err != nil {
			return err
		}
	}
}

// forward connects a client to a ready pod of the Service.
func forward(ctx context.Context, client net.Conn) error {
	defer client.Close()
	endpoints, err := env.driver.kubectl.Run(ctx, "", "get", "endpointslices", "--selector=kubernetes.io/service-name="+metadataService,
		"--output=jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses[0]} {.items[*].ports[0].port}")
	if err != nil {
		return err
	}
	fields := strings.Fields(endpoints)
	if len(fields) < 2 {
		return fmt.Errorf("no pod of Service %s is ready: %q", metadataService, endpoints)
	}
	server, err := net.Dial("tcp", net.JoinHostPort(fields[0], fields[len(fields)-1]))
	if err != nil {
		return err
	}
	defer server.Close()
	var g errgroup.Group
	for _, d := range [][2]net.Conn{{client, server}, {server, client}} {
		g.Go(func() error {
			_, _ = io.Copy(d[0], d[1]) // either side may close the connection
			_ = d[0].Close()
			return nil
		})
	}
	return g.Wait()
}

// pageBlocks returns the code blocks in a section of the page.
func pageBlocks(t *testing.T, heading string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, backupPage))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n"+heading+"\n")
	require.True(t, found, heading)
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for _, m := range codeBlock.FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

var codeBlock = regexp.MustCompile("(?s)```console\n(.*?)```")
