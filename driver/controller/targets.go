package controller

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/outage"
	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// targets holds the configured targets and the connections to their proxies.
type targets struct {
	configs   []config.Target
	placement []placement.Target // the same targets, for package placement
	choice    placement.Choice
	timeout   time.Duration // limits how long a target may take to list its lvstores and volumes
	check     time.Duration // interval between checks for leftovers; 0 means no checks
	byName    map[string]*volume.Target
	pools     map[string]*x509.CertPool
	metrics   *metrics.Metrics // nil for no metrics
	outages   *outage.Log

	// former contains the services of targets that a reload has changed. The services record which
	// lvstores have been seen.
	former map[clientKey]*volume.Service

	mu      sync.Mutex
	clients map[clientKey]*client
	clock   uint64 // increases with each use of a client
}

// A clientKey identifies a client by its target and a hash of its credentials, so that the map
// contains no passwords.
type clientKey struct {
	target     string
	credential [sha256.Size]byte
}

// A client is a connection to a target's proxy. Its service caches information about the target.
type client struct {
	rpc     *spdkrpc.Client
	service *volume.Service
	https   *spdkrpc.HTTPS
	used    uint64 // the clock at the last use
}

// errNoAnswer means that a target does not list its lvstores and volumes in time.
var errNoAnswer = fmt.Errorf("%w: the target did not list its lvstores and volumes", spdkrpc.Unreachable)

// maxClients limits the number of clients for each target. Each credential that is used with the
// target has its own client. The limit is per target because a call may query several targets; with
// a common limit, they would evict each other's clients.
const maxClients = 16

func newTargets(c *config.Config) (*targets, error) {
	t := &targets{configs: c.Nodes, placement: c.PlacementTargets(), choice: c.Placement.Choice(), timeout: c.Placement.Timeout(), check: c.Check.Every(), byName: map[string]*volume.Target{}, pools: map[string]*x509.CertPool{}, clients: map[clientKey]*client{}}
	for _, n := range c.Nodes {
		pool, err := n.CertPool()
		if err != nil {
			return nil, err
		}
		t.pools[n.Name] = pool
		t.byName[n.Name] = volume.NewTarget(volume.Config{
			Config: export.Config{Name: n.Name, Transport: n.Transport(), Listen: n.Listen(), KeyPrefix: n.KeyPrefix}, Stores: n.Lvstores, Space: c.Placement.Space(), DetachClones: c.Snapshots.DetachClones(), UncountedWrites: n.TargetType == config.TargetLoop,
		})
	}
	return t, nil
}

func (t *targets) config(name string) (config.Target, error) {
	i := slices.IndexFunc(t.configs, func(c config.Target) bool { return c.Name == name })
	if i < 0 {
		return config.Target{}, fmt.Errorf("%w: %q: add it to nodes in config.json again, or make sure that its volumes no longer exist", request.ErrUnknownTarget, name)
	}
	return t.configs[i], nil
}

// open returns the service of a target, using the target's credentials in tokens.
func (t *targets) open(name string, tokens map[string]config.Credential) (*volume.Service, error) {
	c, err := t.config(name)
	if err != nil {
		return nil, err
	}
	token, ok := tokens[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s has no entry in rpcTokens for the target %q of config.json", request.ErrCredentials, config.SecretKey, name)
	}
	known, err := t.client(c, token)
	if err != nil {
		return nil, err
	}
	return known.service, nil
}

// openEach returns the services of several targets.
func (t *targets) openEach(selected []placement.Target, tokens map[string]config.Credential) ([]*volume.Service, error) {
	services := make([]*volume.Service, len(selected))
	for i, p := range selected {
		var err error
		if services[i], err = t.open(p.Name, tokens); err != nil {
			return nil, err
		}
	}
	return services, nil
}

// placed converts a target to the type of package placement.
func (t *targets) placed(name string) (placement.Target, error) {
	c, err := t.config(name)
	return placement.Target{Name: c.Name, Topology: c.Topology, Labels: c.Labels}, err
}

func (t *targets) client(c config.Target, token config.Credential) (*client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clock++
	key := clientKey{c.Name, sha256.Sum256(fmt.Appendf(nil, "%q", token))}
	if known, ok := t.clients[key]; ok {
		known.used = t.clock
		return known, nil
	}
	https, err := spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{
		URL: c.RPCURL, CA: t.pools[c.Name],
		Username: token.Username, Password: token.Password, Token: token.Token, TokenFile: token.TokenFile,
		CertFile: token.CertFile, KeyFile: token.KeyFile,
	})
	if err != nil {
		return nil, fmt.Errorf("target %s: %w", c.Name, err)
	}
	t.evict(c.Name)
	host := c.RPCURL
	if u, err := url.Parse(c.RPCURL); err == nil {
		host = u.Host
	}
	rpc := spdkrpc.NewClient(counted{https, c.Name, host, t.metrics, t.outages})
	made := &client{rpc: rpc, service: t.byName[c.Name].Service(rpc), https: https, used: t.clock}
	if former := t.former[key]; former != nil {
		made.service.Remember(former)
	}
	t.clients[key] = made
	return made, nil
}

// evict makes room for another client of a target. If there are maxClients clients, it drops the
// least recently used client without interrupting calls in flight.
func (t *targets) evict(target string) {
	var oldest clientKey
	kept := 0
	for k, c := range t.clients {
		if k.target != target {
			continue
		}
		kept++
		if o, ok := t.clients[oldest]; !ok || c.used < o.used {
			oldest = k
		}
	}
	if kept < maxClients {
		return
	}
	_ = t.clients[oldest].https.Close()
	delete(t.clients, oldest)
}

func (t *targets) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.clients {
		_ = c.https.Close()
	}
}

// equal reports whether two configurations define the same targets.
func (t *targets) equal(other *targets) bool {
	if t.choice != other.choice || t.timeout != other.timeout || t.check != other.check || len(t.configs) != len(other.configs) {
		return false
	}
	for i, c := range t.configs {
		if c.Name != other.configs[i].Name || !t.same(other, c.Name) {
			return false
		}
	}
	return true
}

// same reports whether two configurations define a target identically.
func (t *targets) same(other *targets, name string) bool {
	mine, err := t.config(name)
	if err != nil {
		return false
	}
	theirs, err := other.config(name)
	return err == nil && reflect.DeepEqual(mine, theirs) && t.pools[name].Equal(other.pools[name]) && t.byName[name].Space == other.byName[name].Space && t.byName[name].DetachClones == other.byName[name].DetachClones
}

// takeOver copies the clients of unchanged targets from old. It returns the names of the other
// targets, and the clients that are no longer used.
func (t *targets) takeOver(old *targets) (changed []string, unused []*client) {
	old.mu.Lock()
	defer old.mu.Unlock()
	t.clock, t.former = old.clock, map[clientKey]*volume.Service{}
	for _, c := range t.configs {
		if t.same(old, c.Name) {
			t.byName[c.Name] = old.byName[c.Name]
		} else {
			changed = append(changed, c.Name)
		}
	}
	for _, c := range old.configs {
		if _, err := t.config(c.Name); err != nil {
			changed = append(changed, c.Name)
		}
	}
	for key, known := range old.clients {
		switch now, err := t.config(key.target); {
		case t.same(old, key.target):
			t.clients[key] = known
			continue
		case err == nil && slices.Equal(now.Lvstores, known.service.Config.Stores):
			t.former[key] = known.service
		}
		unused = append(unused, known)
	}
	return changed, unused
}
