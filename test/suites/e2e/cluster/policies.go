package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
)

// The package iptables contains these programs. Installing the package also creates links to them.
const (
	iptablesFolder  = "/usr/sbin/"
	iptablesProgram = "xtables-nft-multi"
)

// linkIPTables creates the links that callers of iptables use. The new links hide those in the
// host's /usr, which is visible in the sandbox.
func linkIPTables() error {
	var err error
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore"} {
		for _, link := range []string{name, strings.Replace(name, "iptables", "ip6tables", 1)} {
			if e := os.Remove(iptablesFolder + link); !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
			err = errors.Join(err, os.Symlink(iptablesProgram, iptablesFolder+link))
		}
	}
	return err
}

// healthPort is the port where kube-router reports its health.
const healthPort = 20244

// startPolicies starts kube-router on the node, for NetworkPolicies only, and waits until it is
// working. The bridge plugin continues to set addresses and routes.
func (n *Node) startPolicies(ctx context.Context) error {
	if n.cluster.options.PolicyController == "" {
		return nil
	}
	// Packets between pods on the same node pass only through the bridge.
	err := n.machine.Do(func() error { return os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0) })
	if err != nil {
		return fmt.Errorf("let policies apply to the bridge of %s: %w", n.Name, err)
	}
	p, err := n.start("kube-router", n.cluster.options.PolicyController,
		"--run-firewall", "--run-router=false", "--run-service-proxy=false", "--run-loadbalancer=false",
		"--kubeconfig="+n.cluster.Kubeconfig(), "--hostname-override="+n.Name, "--service-cluster-ip-range="+serviceRange,
		fmt.Sprint("--health-port=", healthPort), "--v=1")
	if err != nil {
		return err
	}
	err = p.ready(ctx, func() error {
		response, err := http.Get(fmt.Sprintf("http://%s:%d/healthz", n.Address, healthPort))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
	if err == nil {
		n.cluster.options.Log("%s enforces NetworkPolicies", n.Name)
	}
	return err
}
