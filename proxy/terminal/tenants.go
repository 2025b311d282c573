package terminal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spdkgate/spdkgate/proxy/figures"
)

// tenantsRead lists the methods whose results appear on a tenant's page. All other methods concern
// the whole target.
var tenantsRead = []string{"spdk_get_version", "bdev_lvol_get_lvstores", "bdev_lvol_get_lvols", "bdev_get_bdevs", "nvmf_get_subsystems", "iscsi_get_target_nodes"}

// AddTenants adds the result of spdkgate_get_tenants. If the user belongs to a tenant, the page
// does not mention data that tenants are not permitted to read, but Missing still lists it for
// scripts.
func (s *Status) AddTenants(list []Tenant) {
	s.Tenants = list
	for _, t := range list {
		for _, a := range amounts(t) {
			if a.bounded() && a.share() >= nearlyFull {
				s.warn("tenant %s uses %.0f %% of its quota: %s", t.Name, 100*a.share(), a.text())
			}
		}
	}
	if s.own() == nil {
		return
	}
	s.denied = slices.DeleteFunc(s.denied, func(f figures.Failure) bool { return !slices.Contains(tenantsRead, f.Method) })
}

// own returns the user's tenant, or nil if there is none.
func (s *Status) own() *Tenant {
	for i := range s.Tenants {
		if s.Tenants[i].Own {
			return &s.Tenants[i]
		}
	}
	return nil
}

// A quotaAmount is how much of one limit in its quota a tenant uses.
type quotaAmount struct {
	name       string
	used, most *uint64 // most is nil if there is no limit
}

// amounts returns the amounts that the proxy counts for a tenant.
func amounts(t Tenant) (list []quotaAmount) {
	for _, a := range []quotaAmount{
		{"space", t.Used.Bytes, t.Quota.Bytes}, {"volumes", t.Used.Volumes, t.Quota.Volumes}, {"subsystems", t.Used.Subsystems, t.Quota.Subsystems},
		{"hosts", t.Used.Hosts, t.Quota.Hosts}, {"listeners", t.Used.Listeners, t.Quota.Listeners}, {"keys", t.Used.Keys, t.Quota.Keys},
	} {
		if a.used != nil {
			list = append(list, a)
		}
	}
	return list
}

func (a quotaAmount) bounded() bool { return a.most != nil }

func (a quotaAmount) share() float64 {
	if a.most == nil {
		return 0
	}
	return share(*a.used, *a.most)
}

func (a quotaAmount) text() string {
	number := func(n uint64) string {
		if a.name == "space" {
			return bytes(n)
		}
		return fmt.Sprint(n)
	}
	switch {
	case a.most == nil:
		return number(*a.used) + " used, without a limit"
	case a.name == "space":
		return fmt.Sprintf("%s of %s", number(*a.used), number(*a.most))
	}
	return fmt.Sprintf("%s of %s %s", number(*a.used), number(*a.most), a.name)
}

// tenant writes the quota and the names of the user's tenant.
func (p Page) tenant(b *strings.Builder, line func(colour, text string), t *Tenant) {
	line("", "")
	line(bold, "Quota of tenant "+t.Name)
	for _, a := range amounts(*t) {
		p.bar(b, a.name, len("subsystems"), a)
	}
	line("", "")
	line(bold, "Names of tenant "+t.Name)
	nqns := t.NQNPrefixes
	if t.VolumeNQNPrefix != nil {
		nqns = append(slices.Clone(nqns), *t.VolumeNQNPrefix+"UUID-OF-A-VOLUME")
	}
	for _, kind := range []struct {
		name string
		list []string
	}{{"Lvstores", t.Lvstores}, {"Bdevs", t.Bdevs}, {"NQNs", nqns}, {"IQNs", t.IQNPrefixes}, {"Keys", t.KeyPrefixes}, {"Addresses", t.Addresses}, {"Hosts", t.Hosts}} {
		if len(kind.list) > 0 {
			line("", fmt.Sprintf("%-12s %s", kind.name, strings.Join(kind.list, ", ")))
		}
	}
}

// maxTenants is the maximum number of tenants on a page.
const maxTenants = 8

// tenants writes, for each tenant, the limit of its quota that is closest to being reached.
func (p Page) tenants(b *strings.Builder, line func(colour, text string), list []Tenant) {
	line("", "")
	line(bold, "Tenants")
	type row struct {
		name string
		most quotaAmount
	}
	var rows []row
	for _, t := range list {
		all := amounts(t)
		if len(all) > 0 {
			rows = append(rows, row{t.Name, slices.MaxFunc(all, func(x, y quotaAmount) int { return cmp.Compare(x.share(), y.share()) })})
		}
	}
	slices.SortStableFunc(rows, func(x, y row) int { return cmp.Compare(y.most.share(), x.most.share()) })
	shown, longest := rows[:min(len(rows), maxTenants)], 0
	for _, r := range shown {
		longest = max(longest, utf8.RuneCountInString(fit(r.name, 0)))
	}
	for _, r := range shown {
		p.bar(b, r.name, min(longest, 20), r.most)
	}
	if more := len(rows) - len(shown); more > 0 {
		line("", fmt.Sprintf("and %d more", more))
	}
}

// bar writes an amount as a bar or, if it has no limit, as a number. The bar follows name,
// truncated or padded to width.
func (p Page) bar(b *strings.Builder, name string, width int, a quotaAmount) {
	barWidth := 24
	if p.Width > 0 { // leaves some room for the figures
		width = max(4, min(width, p.Width/3))
		barWidth = max(4, min(barWidth, p.Width-width-12))
	}
	before := fmt.Sprintf("%-*s ", width, fit(name, width))
	if !a.bounded() {
		b.WriteString(fit(before+a.text(), p.Width) + "\n")
		return
	}
	full := cells(a.share(), barWidth)
	colour := green
	switch {
	case a.share() >= nearlyFull:
		colour = red
	case a.share() >= 0.75:
		colour = yellow
	}
	text := fmt.Sprintf(" %3.0f %%, %s", 100*a.share(), a.text())
	if p.Width > 0 {
		text = fit(text, max(1, p.Width-utf8.RuneCountInString(before)-barWidth-2))
	}
	b.WriteString(before + "[" + p.colour(colour, strings.Repeat("#", full)) + strings.Repeat(".", barWidth-full) + "]" + text + "\n")
}
