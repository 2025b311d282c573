package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spdkgate/spdkgate/proxy/tenancy"
)

// Tenant lists the objects of a tenant.
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

// Quota bounds what a tenant may use. An absent key means no bound, except for keys. 0 is an error,
// because it could mean the opposite.
type Quota struct {
	GiB        *int `yaml:"gib"`
	Volumes    *int `yaml:"volumes"`
	Subsystems *int `yaml:"subsystems"`
	Keys       *int `yaml:"keys"`
}

// defaultKeys bounds the keys of a tenant whose configuration has no quota for them, because the
// proxy stores a limited number of keys (keys.maxKeys), which all tenants share.
const (
	defaultKeys = 256
	mostKeys    = 4096
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

// TenantsOfUsers maps users to their tenants. Users without one are absent.
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
	const most = 1 << 30 // GiB are an exbibyte then
	value := func(key string, n *int) int {
		if n == nil {
			return 0
		}
		if wrong := between("quota."+key, *n, most); wrong != nil {
			err = errors.Join(err, fmt.Errorf("%w; remove the key for no limit", wrong))
		}
		return *n
	}
	quota = tenancy.Quota{Volumes: value("volumes", q.Volumes), Subsystems: value("subsystems", q.Subsystems)}
	if quota.Keys = defaultKeys; q.Keys != nil {
		quota.Keys = *q.Keys
		err = errors.Join(err, between("quota.keys", quota.Keys, mostKeys))
	}
	quota.Bytes = uint64(max(0, value("gib", q.GiB))) << 30
	return quota, err
}
