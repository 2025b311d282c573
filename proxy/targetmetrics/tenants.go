package targetmetrics

import "github.com/spdkgate/spdkgate/proxy/figures"

// writeTenants writes the tenants' usage of their quotas. Bytes and objects have separate metrics,
// because their units differ.
func writeTenants(w *writer, amounts []figures.TenantAmount) {
	if len(amounts) == 0 {
		return
	}
	each := func(name, help string, bytes bool, value func(figures.TenantAmount) *uint64) {
		w.family(name, gauge, help)
		for _, a := range amounts {
			v := value(a)
			if v == nil || bytes != (a.Object == "bytes") {
				continue
			}
			labels := labelled("tenant", a.Tenant)
			if !bytes {
				labels = labelled("tenant", a.Tenant, "object", a.Object)
			}
			w.count(name, labels, *v)
		}
	}
	used := func(a figures.TenantAmount) *uint64 { return &a.Used }
	quota := func(a figures.TenantAmount) *uint64 { return a.Quota }
	each("spdk_tenant_used_bytes", "Sizes of the tenant's volumes and snapshots, as its quota counts them.", true, used)
	each("spdk_tenant_quota_bytes", "Bytes that the tenant may use, if there is a bound.", true, quota)
	each("spdk_tenant_used_objects", "Objects of the tenant, as its quota counts them.", false, used)
	each("spdk_tenant_quota_objects", "Objects that the tenant may have, if there is a bound.", false, quota)
}
