package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spdkgate/spdkgate/proxy/tenancy"
)

// Tenant contains the objects and limits of a tenant.
type Tenant struct {
	LVStores    []string `yaml:"lvstores"`
	Bdevs       []string `yaml:"bdevs"`
	NQNPrefixes []string `yaml:"nqn_prefixes"`
	VolumeNQN   string   `yaml:"volume_nqn_prefix"`
	IQNPrefixes []string `yaml:"iqn_prefixes"`
	KeyPrefixes []string `yaml:"key_prefixes"`
	Addresses   []string `yaml:"addresses"`
	Hosts       []string `yaml:"hosts"`
	Allow       []string `yaml:"allow"`
	Quota       Quota    `yaml:"quota"`
}

// Quota limits what a tenant may use. If a key is absent, the default applies (for GiB, no limit).
// 0 is an error, because it could mean either no limit or no use at all.
type Quota struct {
	GiB        *int `yaml:"gib"`
	Volumes    *int `yaml:"volumes"`
	Subsystems *int `yaml:"subsystems"`
	Hosts      *int `yaml:"hosts"`
	Listeners  *int `yaml:"listeners"`
	Keys       *int `yaml:"keys"`
}

// These are the default limits of each tenant. All tenants share SPDK's subsystems (1,024, unless
// nvmf_set_max_subsystems changes the number) and the proxy's keys (keys.maxKeys). They also share
// the time for reading the configuration before a response to a change, and for loading it at a
// restart.
const (
	defaultVolumes    = 2048
	defaultSubsystems = 512
	defaultHosts      = 1024
	defaultListeners  = 1024
	defaultKeys       = 256

	most     = 1 << 30 // one exbibyte, in GiB
	mostKeys = 4096
)

// TenancyTenants returns the tenants for package tenancy.
func (c *Config) TenancyTenants() (tenants []tenancy.Tenant, err error) {
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		t := c.Tenants[name]
		quota, err := t.Quota.quota()
		if err != nil {
			wrong = append(wrong, fmt.Errorf("tenant %s: %w", name, err))
		}
		tenants = append(tenants, tenancy.Tenant{
			Name: name, LVStores: t.LVStores, Bdevs: t.Bdevs, NQNPrefixes: t.NQNPrefixes, VolumeNQN: t.VolumeNQN, IQNPrefixes: t.IQNPrefixes,
			KeyPrefixes: t.KeyPrefixes, Addresses: t.Addresses, Hosts: t.Hosts, Allow: t.Allow, Quota: quota,
		})
	}
	return tenants, errors.Join(wrong...)
}

// TenantsOfUsers maps users to their tenants. It omits users without a tenant.
func (c *Config) TenantsOfUsers() map[string]string {
	tenants := map[string]string{}
	for _, u := range c.Users {
		if u.Tenant != "" {
			tenants[u.Name] = u.Tenant
		}
	}
	return tenants
}

func (q Quota) quota() (quota tenancy.Quota, err error) {
	value := func(key string, n *int, otherwise, most int) int {
		if n == nil {
			return otherwise
		}
		if wrong := between("quota."+key, *n, most); wrong != nil {
			err = errors.Join(err, fmt.Errorf("%w; remove the key to use the default (%d)", wrong, otherwise))
		}
		return *n
	}
	quota = tenancy.Quota{
		Volumes:    value("volumes", q.Volumes, defaultVolumes, most),
		Subsystems: value("subsystems", q.Subsystems, defaultSubsystems, most),
		Hosts:      value("hosts", q.Hosts, defaultHosts, most),
		Listeners:  value("listeners", q.Listeners, defaultListeners, most),
		Keys:       value("keys", q.Keys, defaultKeys, mostKeys),
	}
	if q.GiB != nil {
		if wrong := between("quota.gib", *q.GiB, most); wrong != nil {
			return quota, errors.Join(err, fmt.Errorf("%w; remove the key for no limit", wrong))
		}
		quota.Bytes = uint64(*q.GiB) << 30
	}
	return quota, err
}
