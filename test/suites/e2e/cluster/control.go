package cluster

import (
	"context"
	"fmt"
)

// nodeGracePeriod is the time after which Kubernetes considers an unresponsive node to be lost. The
// default is 50 s.
const nodeGracePeriod = "15s"

// Issuer is the issuer of the cluster's service account tokens.
const Issuer = "https://kubernetes.default.svc"

const etcdURL = "http://127.0.0.1:2379"

// startControlPlane starts the processes of the control plane, and returns when pods can be
// created.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	const peerURL = "http://127.0.0.1:2380"
	_, err := c.start("etcd", c.options.Programs["etcd"],
		"--data-dir="+c.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=default="+peerURL)
	if err != nil {
		return err
	}
	apiserver, err := c.start("kube-apiserver", c.options.Programs["kube-apiserver"],
		"--etcd-servers="+etcdURL, "--bind-address=0.0.0.0", "--secure-port=443", "--advertise-address="+Address, "--endpoint-reconciler-type=none",
		"--tls-cert-file="+c.pki.path("apiserver.crt"), "--tls-private-key-file="+c.pki.path("apiserver.key"),
		"--client-ca-file="+c.pki.path("ca.crt"), "--token-auth-file="+c.pki.path("tokens.csv"), "--anonymous-auth=false",
		"--service-account-issuer="+Issuer,
		"--service-account-key-file="+c.pki.path("service-accounts.key"), "--service-account-signing-key-file="+c.pki.path("service-accounts.key"),
		"--service-cluster-ip-range="+serviceRange, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
		"--kubelet-client-certificate="+c.pki.path("kubelet-client.crt"), "--kubelet-client-key="+c.pki.path("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP")
	if err != nil {
		return err
	}
	if err := apiserver.ready(ctx, func() error { return c.Kubectl().ask(ctx, "get", "--raw", "/readyz") }); err != nil {
		return err
	}
	c.options.Log("etcd and kube-apiserver are ready")
	manager, err := c.start("kube-controller-manager", c.options.Programs["kube-controller-manager"],
		append(c.client(controller), "--bind-address=127.0.0.1", "--leader-elect=false", "--use-service-account-credentials",
			"--node-monitor-grace-period="+nodeGracePeriod,
			"--kube-api-qps=200", "--kube-api-burst=400", // with the default, 20, it binds 4 claims/s
			"--service-account-private-key-file="+c.pki.path("service-accounts.key"), "--root-ca-file="+c.pki.path("ca.crt"))...)
	if err != nil {
		return err
	}
	if _, err := c.start("kube-scheduler", c.options.Programs["kube-scheduler"],
		append(c.client(scheduler), "--bind-address=127.0.0.1", "--leader-elect=false")...); err != nil {
		return err
	}
	err = manager.ready(ctx, func() error { return c.Kubectl().ask(ctx, "get", "serviceaccount", "default") })
	if err != nil {
		return fmt.Errorf("wait for the first service account: %w", err)
	}
	c.options.Log("kube-controller-manager and kube-scheduler are ready")
	return nil
}

// client returns the flags for a process that is an API client.
func (c *Cluster) client(user string) []string {
	config := c.pki.path(user + ".kubeconfig")
	return []string{"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config}
}
