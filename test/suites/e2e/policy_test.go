//go:build kubernetes

package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/test/suites/e2e/cluster"
)

var policyController = flag.String("network-policies", "", "path of kube-router, which then enforces the chart's NetworkPolicy in all tests; adds TestNetworkPolicy and TestProxyNetworkPolicyIsEnforced")

// policyPackages returns the packages that the nodes need for -network-policies.
func policyPackages() ([]string, error) {
	if *policyController == "" {
		return nil, nil
	}
	if !filepath.IsAbs(*policyController) {
		return nil, fmt.Errorf("-network-policies=%s is not the absolute path of a program: build or download kube-router (github.com/cloudnativelabs/kube-router) and give its path", *policyController)
	}
	if _, err := exec.LookPath(*policyController); err != nil {
		return nil, fmt.Errorf("-network-policies: %w: build or download kube-router (github.com/cloudnativelabs/kube-router) and give its path", err)
	}
	return cluster.PolicyPackages, nil
}

// readers lists the pods that are allowed to read metrics: those in TestNetworkPolicy's namespace.
func readers(namespace string) []any {
	return []any{map[string]any{
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": namespace}},
		"podSelector":       map[string]any{"matchLabels": map[string]any{"app": "reader"}},
	}}
}

// networkPolicy returns the values for the chart's NetworkPolicy with minimal permissions.
func networkPolicy() map[string]any {
	if *policyController == "" {
		return map[string]any{}
	}
	return map[string]any{
		"create": true, "metricsFrom": readers("networkpolicy"),
		"apiServer": map[string]any{"ports": []int{443}, "cidrs": []string{cluster.ServiceAddress + "/32"}},
	}
}

func TestNetworkPolicy(t *testing.T) {
	if *policyController == "" {
		t.Skip("only with ARGS=-network-policies=PATH")
	}
	n := disturbingNamespace(t, "with the chart's NetworkPolicy enforced, the controller reaches the API server, DNS and the storage server, and nothing else; only the pods named in the values can read its metrics; kubelet probes it")
	env.run(t, "create", "secret", "generic", "metrics", "--from-literal=token=secret")
	values := env.driver.values()
	t.Cleanup(func() {
		env.upgrade(t, values)
		require.NoError(t, env.driver.inService(context.Background()))
		env.run(t, "delete", "secret", "metrics")
	})
	measured := maps.Clone(values)
	measured["metrics"] = map[string]any{"tokenSecret": "metrics"}
	env.upgrade(t, measured)
	require.NoError(t, env.driver.inService(t.Context()))
	var pods []string
	n.eventually("two pods of the controller: those that they replaced have ended", func(context.Context) error {
		pods = strings.Fields(env.run(t, "get", "pods", "--selector=app="+driverDeployment, "--output=jsonpath={.items[*].metadata.name}"))
		if len(pods) != 2 {
			return fmt.Errorf("pods: %v", pods)
		}
		return nil
	})
	n.clients("reader", "stranger")
	refused := []string{
		listen(t, "0"), cluster.Address + ":443", n.address("reader-0") + ":8080", n.address("reader-1") + ":8080",
		env.cluster.Nodes[0].Address + ":10250", env.cluster.Nodes[1].Address + ":10250",
	}
	dns, err := net.ListenPacket("udp", cluster.Address+":53")
	require.NoError(t, err)
	t.Cleanup(func() { dns.Close() })
	permitted := []string{cluster.ServiceAddress + ":443", cluster.Address + ":9009", listen(t, "53")}

	for _, p := range pods {
		address := env.run(t, "get", "pod", p, "--output=jsonpath={.status.podIP}")
		n.refusesStrangers(address + ":8081")
		for _, port := range []int{8081, 8082, 8083, 8084, 9810} {
			to := fmt.Sprint(address, ":", port)
			for i := range env.cluster.Nodes {
				assert.False(t, n.connects(fmt.Sprint("stranger-", i), to), "a stranger, %s", to)
				assert.Contains(t, n.exec(fmt.Sprint("reader-", i), fmt.Sprintf(readMetrics, address, port)), "# TYPE", to)
			}
		}
		for _, from := range []string{"reader-0", "stranger-0", "reader-1", "stranger-1"} {
			assert.False(t, n.connects(from, address+":9808"), "%s, the probe's port", from)
		}
		inside := n.inside(driverNamespace, p)
		for _, to := range permitted {
			assert.Equal(t, "yes", inside(connection(to)), "the controller, %s", to)
		}
		inside(sendDatagram)
		require.NoError(t, dns.SetReadDeadline(time.Now().Add(5*time.Second)))
		for from := ""; from != address; {
			_, sender, err := dns.ReadFrom(make([]byte, 512))
			require.NoError(t, err, "the controller, UDP")
			from, _, err = net.SplitHostPort(sender.String())
			require.NoError(t, err)
		}
		for _, to := range refused {
			assert.Equal(t, "no", inside(connection(to)), "the controller, %s", to)
			assert.True(t, n.connects("stranger-0", to), "without a policy, %s", to)
		}
	}
	n.figure("%d connections tried", len(pods)*(10*len(env.cluster.Nodes)+4+len(permitted)+1+2*len(refused)))

	time.Sleep(30 * time.Second) // each container is probed during this time
	for _, p := range pods {
		assert.Empty(t, env.run(t, "get", "events", "--field-selector=reason=Unhealthy,involvedObject.name="+p, "--output=jsonpath={.items[*].message}"), "failed probes")
	}
}

func TestProxyNetworkPolicyIsEnforced(t *testing.T) {
	if *policyController == "" {
		t.Skip("only with ARGS=-network-policies=PATH")
	}
	n := parallelNamespace(t, "with the NetworkPolicy of spdk-proxy's chart enforced, only the pods named in the values reach the proxy; kubelet probes it; it connects to nothing")
	node := env.cluster.Nodes[0]
	certificate, key, _, err := env.cluster.ServerCertificate("spdk-proxy", node.Address)
	require.NoError(t, err)
	n.run("create", "secret", "tls", "spdk-proxy-tls", "--cert="+certificate, "--key="+key)
	hash, err := env.driver.server.HashPassword(t.Context(), rand.Text())
	require.NoError(t, err)
	values, err := json.Marshal(map[string]any{
		"port": 9029, "nodeSelector": map[string]any{"kubernetes.io/hostname": node.Name, "spdkgate.io/storage-server": nil},
		"tls":           map[string]any{"secretName": "spdk-proxy-tls"},
		"target":        map[string]any{"socketDir": filepath.Join(env.driver.dir, storageFolder)},
		"stateDir":      filepath.Join(env.driver.dir, "state-of-proxy"),
		"config":        map[string]any{"users": []any{map[string]any{"name": "reader", "password_hash": hash, "roles": []string{"read-only"}}}},
		"networkPolicy": map[string]any{"create": true, "from": append(readers(n.name), map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": "spdkcsi-test"}}})},
	})
	require.NoError(t, err)
	proxyValues := filepath.Join(t.TempDir(), "proxy.json")
	require.NoError(t, os.WriteFile(proxyValues, values, 0o600))
	_, err = env.driver.helmIn(t.Context(), n.name, "install", "spdk-proxy", filepath.Join(repository, "deploy/helm/spdk-proxy"), "--values="+proxyValues)
	require.NoError(t, err)
	// ready only after kubelet has probed it
	n.run("rollout", "status", "daemonset/spdk-proxy", rolloutTimeout)
	n.clients("reader", "stranger", "spdkcsi-test")

	pod := n.run("get", "pods", "--selector=app=spdk-proxy", "--output=jsonpath={.items[*].metadata.name}")
	address, ofNode := n.address(pod)+":9029", node.Address+":9029"
	n.refusesStrangers(address)
	for i := range env.cluster.Nodes {
		for _, to := range []string{address, ofNode} {
			assert.True(t, n.connects(fmt.Sprint("reader-", i), to), to)
			assert.False(t, n.connects(fmt.Sprint("stranger-", i), to), to)
		}
	}
	n.driverReaches(ofNode)
	inside := n.inside(n.name, pod)
	assert.Equal(t, "yes", inside(connection("127.0.0.1:9029")))
	for _, to := range []string{cluster.ServiceAddress + ":443", cluster.Address + ":9009", listen(t, "0"), n.address("reader-0") + ":8080", n.address("reader-1") + ":8080"} {
		assert.Equal(t, "no", inside(connection(to)), "the proxy, %s", to)
		assert.True(t, n.connects("stranger-0", to), "without a policy, %s", to)
	}
}

// driverReaches requires that the NetworkPolicy of the driver's chart lets pods reach only the
// proxy, at a node's address and port. Pods must be able to reach the proxy both from its own node
// and from other nodes.
func (n *namespace) driverReaches(proxy string) {
	n.t.Helper()
	values := env.driver.values()
	server := maps.Clone(values["storageServers"].([]any)[0].(map[string]any))
	server["rpcURL"] = "https://" + proxy
	values["storageServers"] = []any{server}
	text, err := json.Marshal(values)
	require.NoError(n.t, err)
	file := filepath.Join(n.t.TempDir(), "driver.json")
	require.NoError(n.t, os.WriteFile(file, text, 0o600))
	policy, err := env.driver.helmIn(n.t.Context(), n.name, "template", release, filepath.Join(repository, "deploy/helm/spdk-csi"), "--values="+file, "--show-only=templates/network-policy.yaml")
	require.NoError(n.t, err)
	other := n.address("reader-0") + ":8080"
	assert.True(n.t, n.connects("spdkcsi-test-0", other), "before the policy")
	n.apply(policy)
	for i := range env.cluster.Nodes {
		pod := fmt.Sprint("spdkcsi-test-", i)
		n.eventually("the policy applies to "+pod, func(context.Context) error {
			if n.connects(pod, other) {
				return errors.New("it can connect to any pod")
			}
			return nil
		})
		assert.True(n.t, n.connects(pod, proxy), "%s, %s", pod, proxy)
	}
}

// refusesStrangers waits until a policy is being enforced for an address and port.
func (n *namespace) refusesStrangers(to string) {
	n.t.Helper()
	n.eventually("a policy applies to "+to, func(context.Context) error {
		if n.connects("stranger-0", to) || n.connects("stranger-1", to) {
			return errors.New("a stranger can connect")
		}
		return nil
	})
}

// clients starts the pod APP-0 on the first node and APP-1 on the second. Packets between pods on
// one node pass through a bridge, and packets between nodes are routed. The pods serve HTTP on port
// 8080.
func (n *namespace) clients(apps ...string) {
	n.t.Helper()
	for i, node := range env.cluster.Nodes {
		for _, app := range apps {
			n.apply(onNode(node.Name, fmt.Sprintf(client, app, i)))
		}
	}
	n.run("wait", "pods", "--selector=app in ("+strings.Join(apps, ", ")+")", "--for=condition=Ready", "--timeout="+waitTimeout.String())
}

const client = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s-%[2]d, labels: {app: %[1]s}}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
    - {name: main, image: "docker.io/library/busybox:1.37.0", command: [httpd, -f, -p, "8080"]}
`

// readMetrics is a shell script. The image's wget and nslookup need libraries that the image does
// not have.
const readMetrics = `{ printf 'GET /metrics HTTP/1.0\r\nAuthorization: Bearer secret\r\n\r\n'; sleep 1; } | nc -w 5 %s %d`

// sendDatagram is a shell script that sends UDP datagrams to the port of DNS.
const sendDatagram = "timeout 3 tftp -g -l /tmp/x -r x " + cluster.Address + " 53 || true"

// tryConnection is a shell script that prints whether a TCP connection to an address and port
// succeeds.
const tryConnection = "nc -w 3 %s %s </dev/null >/dev/null 2>&1 && echo yes || echo no"

func connection(to string) string {
	host, port, _ := net.SplitHostPort(to)
	return fmt.Sprintf(tryConnection, host, port)
}

// connects reports whether a pod of the namespace can connect to an address and port.
func (n *namespace) connects(pod, to string) bool {
	n.t.Helper()
	return n.exec(pod, connection(to)) == "yes"
}

func (n *namespace) address(pod string) string {
	n.t.Helper()
	return n.run("get", "pod", pod, "--output=jsonpath={.status.podIP}")
}

// inside starts a container in a pod's network. It returns a function that runs a shell script
// there and returns its output.
func (n *namespace) inside(namespace, pod string) func(script string) string {
	n.t.Helper()
	const name = "shell"
	kubectl := env.cluster.Kubectl().In(namespace)
	_, err := kubectl.Run(n.t.Context(), "", "debug", pod, "--image=docker.io/library/busybox:1.37.0", "--container="+name, "--profile=baseline", "--quiet", "--", "sleep", "1d")
	require.NoError(n.t, err)
	n.eventually("a shell in "+pod, func(ctx context.Context) error {
		_, err := kubectl.Run(ctx, "", "exec", pod, "--container="+name, "--", "true")
		return err
	})
	return func(script string) string {
		n.t.Helper()
		out, err := kubectl.Run(context.Background(), "", "exec", pod, "--container="+name, "--", "sh", "-c", script)
		require.NoError(n.t, err)
		return strings.TrimSpace(out)
	}
}

// listen accepts TCP connections on a port of the control plane's machine until the test ends. It
// returns the address and port.
func listen(t *testing.T, port string) string {
	t.Helper()
	l, err := net.Listen("tcp", cluster.Address+":"+port)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l.Addr().String()
}
