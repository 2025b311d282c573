package observe

import (
	"context"
	"time"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	tenantsEvery = time.Minute // minimum time between two reads of tenants' usage
	tenantsShare = 100         // pause after a read, in multiples of its duration
)

// A tenantReading contains the tenants' usage of their quotas as of the last read.
type tenantReading struct {
	at       time.Time
	took     time.Duration
	of       *tenancy.Tenancy
	restarts int
	amounts  []figures.TenantAmount
}

// readTenants adds the tenants' usage of their quotas to the figures. It counts the usage as quota
// checks do, and reuses recent values.
func (o *Observer) readTenants(ctx context.Context, t figures.Target, made *figures.Figures) {
	all := o.Gate.Settings().Tenancy
	scopes := all.Scopes()
	if !made.Up || len(scopes) == 0 {
		o.tenants = tenantReading{}
		return
	}
	last := o.tenants
	if last.of == all && last.restarts == t.Restarts && time.Since(last.at) < max(tenantsEvery, tenantsShare*last.took) {
		made.Tenants = last.amounts
		return
	}
	began := time.Now()
	used, err := o.Gate.Execute.TenantUsage(ctx, t.Ask, all, scopes)
	o.tenants = tenantReading{at: began, took: time.Since(began), of: all, restarts: t.Restarts}
	if err != nil { // report no amounts rather than outdated amounts
		made.Failures = append(made.Failures, figures.Failure{Method: "spdkgate_get_tenants", Err: err})
		return
	}
	for i, s := range scopes {
		o.tenants.amounts = append(o.tenants.amounts, amountsOf(s.Name, used[i], o.Gate.Execute.QuotaOf(s))...)
	}
	made.Tenants = o.tenants.amounts
}

func amountsOf(tenant string, used, quota spdkrpc.ProxyTenantAmounts) (list []figures.TenantAmount) {
	for _, a := range []struct {
		object     string
		used, most *uint64
	}{
		{"bytes", used.Bytes, quota.Bytes}, {"volumes", used.Volumes, quota.Volumes}, {"subsystems", used.Subsystems, quota.Subsystems},
		{"hosts", used.Hosts, quota.Hosts}, {"listeners", used.Listeners, quota.Listeners}, {"keys", used.Keys, quota.Keys},
	} {
		if a.used != nil {
			list = append(list, figures.TenantAmount{Tenant: tenant, Object: a.object, Used: *a.used, Quota: a.most})
		}
	}
	return list
}
