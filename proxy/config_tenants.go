package proxy

import (
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/proxy/tenancy"
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
