package proxy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// TenantConfig says what belongs to a tenant.
type TenantConfig struct {
	LVStores    []string    `yaml:"lvstores"`
	Bdevs       []string    `yaml:"bdevs"`
	NQNPrefixes []string    `yaml:"nqn_prefixes"`
	VolumeNQN   string      `yaml:"volume_nqn_prefix"`
	IQNPrefixes []string    `yaml:"iqn_prefixes"`
	KeyPrefixes []string    `yaml:"key_prefixes"`
	Addresses   []string    `yaml:"addresses"`
	Hosts       []string    `yaml:"hosts"`
	Allow       []string    `yaml:"allow"`
	Quota       QuotaConfig `yaml:"quota"`
}

// QuotaConfig bounds what a tenant may take up. What is left out is not bounded,
// and to write 0 for that is an error, as it could mean the opposite.
type QuotaConfig struct {
	GiB        *int `yaml:"gib"`
	Volumes    *int `yaml:"volumes"`
	Subsystems *int `yaml:"subsystems"`
}

// newTenancy makes the stage that knows whose what is. What a former one has
// counted goes on to count.
func newTenancy(c *Config, schema *rpcschema.Document, former *tenancy.Tenancy) (*tenancy.Tenancy, error) {
	var tenants []tenancy.Tenant
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
	ofUser := map[string]string{}
	for _, u := range c.Users {
		if u.Tenant != "" {
			ofUser[u.Name] = u.Tenant
		}
	}
	made, err := tenancy.New(tenants, ofUser, schema, former)
	return made, errors.Join(append(wrong, err)...)
}

func (q QuotaConfig) quota() (quota tenancy.Quota, err error) {
	const most = 1 << 30 // GiB are an exbibyte then
	value := func(key string, n *int) int {
		if n == nil {
			return 0
		}
		if wrong := between("quota."+key, *n, most); wrong != nil {
			err = errors.Join(err, fmt.Errorf("%w; leave it out for no bound", wrong))
		}
		return *n
	}
	quota = tenancy.Quota{Volumes: value("volumes", q.Volumes), Subsystems: value("subsystems", q.Subsystems)}
	quota.Bytes = uint64(max(0, value("gib", q.GiB))) << 30
	return quota, err
}
