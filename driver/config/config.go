package config

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/request"
)

// Path and CredentialsDir are the locations of the controller's files, as in SPDK's spdk-csi. The
// environment variables PathEnv and CredentialsEnv override the paths.
const (
	PathEnv        = "SPDKCSI_CONFIG"
	Path           = "/etc/spdkcsi-config/config.json"
	CredentialsEnv = "SPDKCSI_SECRET"
	CredentialsDir = "/etc/spdkcsi-secret"
)

// A Config is the contents of the controller's config.json. Each storage node in it is one SPDK
// target behind a proxy.
type Config struct {
	// Nodes are the storage servers.
	Nodes []Target `json:"nodes"`
	// Placement sets how targets and lvstores are chosen, and how full they may become.
	Placement Placement `json:"placement,omitzero"`
	// Snapshots sets how snapshots are deleted.
	Snapshots Snapshots `json:"snapshots,omitzero"`
	// Check sets how often targets are checked for leftovers.
	Check Check `json:"check,omitzero"`
}

// A Target describes how to reach one target, and how nodes reach its exports.
type Target struct {
	// Name is the name of the target. It is part of volume ids, so it must never change.
	Name string `json:"name"`
	// RPCURL is the URL of spdk-proxy or rpc_http_proxy.py: https://host:port/, or http:// if the
	// network is trusted.
	RPCURL string `json:"rpcURL"`
	// TargetType is nvme-tcp, nvme-rdma or iscsi, or loop for simulated targets.
	TargetType string `json:"targetType"`
	// TargetAddr and TargetPort are the address that nodes connect to. The port is 4420 by default,
	// 3260 for iSCSI.
	TargetAddr string `json:"targetAddr"`
	TargetPort string `json:"targetPort,omitzero"`
	// ListenAddr and ListenPort are where the target listens, if that differs from the address that
	// nodes connect to.
	ListenAddr string `json:"listenAddr,omitzero"`
	ListenPort string `json:"listenPort,omitzero"`
	// Addresses are the target's addresses if it has several. They replace TargetAddr, TargetPort,
	// ListenAddr and ListenPort.
	Addresses []Address `json:"addresses,omitzero"`
	// CA or CAFile holds the PEM-encoded certificates of the authorities trusted for RPCURL. If
	// both are empty, the system's authorities are trusted.
	CA     string `json:"ca,omitzero"`
	CAFile string `json:"caFile,omitzero"`
	// Lvstores are the lvstores that the driver may use. If it is empty, the driver may use all.
	// The driver then does not notice an lvstore that is not loaded when the controller starts, and
	// treats the volumes in it as deleted.
	Lvstores []string `json:"lvstores,omitzero"`
	// Topology holds the labels that a node must have to reach the target, such as
	// topology.kubernetes.io/zone; if it is empty, every node can reach the target.
	Topology map[string]string `json:"topology,omitzero"`
	// Labels are the labels by which a StorageClass selects targets with its parameter
	// targetLabels.
	Labels map[string]string `json:"labels,omitzero"`
	// KeyPrefix is the prefix of the names of the DH-HMAC-CHAP keys that the driver places on the
	// target; the default is "csi-" ([export.DefaultKeyPrefix]). A tenant of the proxy needs one of
	// its key_prefixes.
	KeyPrefix string `json:"keyPrefix,omitzero"`
	// LoopDir is the data directory of a simulated target.
	LoopDir string `json:"loopDir,omitzero"`
}

// The values of TargetType.
const (
	TargetNVMeTCP  = "nvme-tcp"
	TargetNVMeRDMA = "nvme-rdma"
	TargetISCSI    = "iscsi"
	TargetLoop     = "loop"
)

const configShape = `{"nodes": [{"name": "…", "rpcURL": "https://…", "targetType": "nvme-tcp", "targetAddr": "…"}]}`

// Load reads config.json from the path in $SPDKCSI_CONFIG, or else from [Path].
func Load() (*Config, error) {
	path := cmp.Or(os.Getenv(PathEnv), Path)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w: create the file, or set $%s to its path; it looks like %s", err, PathEnv, configShape)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse reads config.json strictly. Like SPDK's spdk-csi, it ignores the case of keys, because
// files written for SPDK's spdk-csi must keep working.
func Parse(text []byte) (*Config, error) {
	var c Config
	err := json.Unmarshal(bytes.TrimSpace(text), &c, json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(true))
	if err != nil {
		return nil, fmt.Errorf("%w: it must look like %s, optionally with targetPort, listenAddr, listenPort, or addresses instead of these, and with ca, caFile, lvstores, topology, labels, keyPrefix, and with placement, snapshots and check next to nodes", err, configShape)
	}
	if len(c.Nodes) == 0 {
		return nil, fmt.Errorf("nodes is empty: add at least one target, such as %s", configShape)
	}
	var problems []error
	names := map[string]bool{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		n.setDefaults()
		for _, err := range n.check() {
			problems = append(problems, fmt.Errorf("nodes[%d] (%s): %w", i, n.Name, err))
		}
		if names[n.Name] {
			problems = append(problems, fmt.Errorf("nodes[%d]: the name %q is used twice", i, n.Name))
		}
		names[n.Name] = true
	}
	c.Placement.setDefaults()
	problems = append(problems, c.Placement.check()...)
	if err := c.Snapshots.check(); err != nil {
		problems = append(problems, err)
	}
	problems = append(problems, c.Check.check()...)
	problems = append(problems, checkTopology(c.Nodes)...)
	return &c, errors.Join(problems...)
}

func (n *Target) setDefaults() {
	n.TargetType = strings.ToLower(n.TargetType)
	port := "4420"
	if n.TargetType == TargetISCSI {
		port = "3260"
	}
	if len(n.Addresses) > 0 {
		for i := range n.Addresses {
			n.Addresses[i].setDefaults(port)
		}
		return
	}
	if n.TargetType == TargetLoop {
		n.TargetAddr = cmp.Or(n.TargetAddr, "127.0.0.1")
	}
	a := Address{TargetAddr: n.TargetAddr, TargetPort: n.TargetPort, ListenAddr: n.ListenAddr, ListenPort: n.ListenPort}
	a.setDefaults(port)
	n.TargetAddr, n.TargetPort, n.ListenAddr, n.ListenPort = a.TargetAddr, a.TargetPort, a.ListenAddr, a.ListenPort
}

func (n *Target) check() (problems []error) {
	bad := func(key, value, want string) {
		problems = append(problems, fmt.Errorf("%s is %q; it must be %s", key, value, want))
	}
	if !request.IsTargetName(n.Name) {
		bad("name", n.Name, "1 to 63 letters, digits, '.', '_' and '-', the first a letter or digit")
	}
	if u, err := url.Parse(n.RPCURL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		// The URL may contain a password, so the error does not repeat the URL.
		problems = append(problems, errors.New("rpcURL must be https://host:port/, or http://host:port/, without user and password: put those into the secret"))
	}
	switch n.TargetType {
	case TargetNVMeTCP, TargetNVMeRDMA, TargetISCSI, TargetLoop:
	default:
		bad("targetType", n.TargetType, "nvme-tcp, nvme-rdma or iscsi")
	}
	problems = append(problems, n.checkAddresses()...)
	if !export.IsKeyPrefix(n.KeyPrefix) {
		bad("keyPrefix", n.KeyPrefix, "up to 60 letters, digits and _.@+=-, the first a letter, digit or _")
	}
	if (n.TargetType == TargetLoop) != (n.LoopDir != "") {
		bad("loopDir", n.LoopDir, "the simulated target's data directory if targetType is loop, and left out otherwise")
	} else if n.LoopDir != "" && !filepath.IsAbs(n.LoopDir) {
		bad("loopDir", n.LoopDir, "an absolute path")
	}
	if n.CA != "" && n.CAFile != "" {
		problems = append(problems, errors.New("ca and caFile are both set: remove one of them"))
	}
	return problems
}

// CertPool returns the certificates to trust; nil means the system's certificates.
func (n *Target) CertPool() (*x509.CertPool, error) {
	pem := []byte(n.CA)
	if n.CAFile != "" {
		var err error
		if pem, err = os.ReadFile(n.CAFile); err != nil {
			return nil, fmt.Errorf("target %s: caFile: %w: provide the certificates there (ca.certificates of the Helm chart, or ca.crt in the ConfigMap spdkcsi-ca), or remove caFile if a public authority issued the proxy's certificate", n.Name, err)
		}
	}
	if len(pem) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("target %s: ca or caFile contains no PEM-encoded certificate", n.Name)
	}
	return pool, nil
}

// Transport returns the transport that the target uses to export volumes.
func (n *Target) Transport() export.Transport {
	switch n.TargetType {
	case TargetNVMeRDMA:
		return export.RDMA
	case TargetISCSI:
		return export.ISCSI
	}
	return export.TCP // loop targets also have subsystems
}
