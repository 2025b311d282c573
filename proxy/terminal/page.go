package terminal

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// A Page determines the format of text.
type Page struct {
	Width   int  // in columns; 0 means unlimited
	Colours bool // use a terminal's colors
}

// These are colors of ANSI terminals.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
)

func (p Page) colour(code, text string) string {
	if !p.Colours {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// fit escapes text without colors, because object names may contain any characters, and truncates
// it to a number of columns.
func fit(text string, columns int) string {
	text = printable.String(text)
	if columns <= 0 || utf8.RuneCountInString(text) <= columns {
		return text
	}
	runes := []rune(text)
	return string(runes[:columns-1]) + "…"
}

// bytes formats a size in bytes. Like the console, it drops a trailing ".0".
func bytes(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(n), 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	digits := fmt.Sprintf("%.1f", v)
	if i == 0 || v >= 100 {
		digits = fmt.Sprintf("%.0f", v)
	}
	return strings.TrimSuffix(digits, ".0") + " " + units[i]
}

// Plural formats a number with its noun.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// since formats a duration in its two largest units.
func since(d time.Duration) string {
	days, hours, minutes := int(d.Hours())/24, int(d.Hours())%24, int(d.Minutes())%60
	switch {
	case days > 0:
		return fmt.Sprintf("%d d %d h", days, hours)
	case hours > 0:
		return fmt.Sprintf("%d h %d min", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%d min", minutes)
	}
	return fmt.Sprintf("%d s", int(d.Seconds()))
}

// maxUsers is the maximum number of users on a page.
const maxUsers = 8

// Status formats a status as one screen.
func (p Page) Status(s *Status) string {
	var b strings.Builder
	line := func(colour, text string) {
		if text = fit(text, p.Width); colour != "" {
			text = p.colour(colour, text)
		}
		b.WriteString(text + "\n")
	}
	own := s.own()
	head := "SPDK " + s.Release
	if s.Started != nil {
		head += ", up " + since(s.Time.Sub(*s.Started))
	}
	if s.Restarts != nil && *s.Restarts > 0 {
		head += fmt.Sprintf(", restarted %s since the proxy started", Plural(*s.Restarts, "time"))
	}
	if s.Up {
		line(bold, head)
	} else {
		line(red, strings.TrimSpace("Target "+s.State+" "+s.Release))
	}
	if len(s.Stores) > 0 {
		line("", "")
		line(bold, "Lvstores")
		p.stores(&b, s.Stores)
	}
	if s.Up {
		line("", "")
		line("", fmt.Sprintf("Volumes      %d, and %s", s.Volumes, Plural(s.Snapshots, "snapshot")))
		line("", fmt.Sprintf("Exports      %s with %s and %s, %s", Plural(s.Exports.Subsystems, "NVMe-oF subsystem"), Plural(s.Exports.Namespaces, "namespace"), Plural(s.Exports.Listeners, "listener"), Plural(s.Exports.TargetNodes, "iSCSI target")))
		if own == nil && !s.mayNot("nvmf_get_stats") {
			line("", fmt.Sprintf("Connections  %s with %s, %d iSCSI", Plural(int(s.Connections.Controllers), "NVMe-oF controller"), Plural(int(s.Connections.QueuePairs), "queue pair"), s.Connections.ISCSI))
		}
		if s.Cores > 0 {
			line("", fmt.Sprintf("Cores        %d, busy %.0f %% of their time", s.Cores, 100*s.Busy))
		}
	}
	switch {
	case own != nil:
		p.tenant(&b, line, own)
	case len(s.Tenants) > 0:
		p.tenants(&b, line, s.Tenants)
	}
	if s.Limits != nil {
		p.limits(&b, line, s.Limits)
	}
	if len(s.Users) > 0 {
		line("", "")
		line(bold, fmt.Sprintf("%-24s %12s %12s %12s", "Calls by user", "calls", "refused", "failed"))
		for _, u := range s.Users[:min(len(s.Users), maxUsers)] {
			line("", fmt.Sprintf("%-24s %12d %12d %12d", fit(u.Name, 24), u.Calls, u.Refused, u.Failed))
		}
		if more := len(s.Users) - maxUsers; more > 0 {
			line("", fmt.Sprintf("and %d more", more))
		}
	}
	if len(s.Warnings)+len(s.broken)+len(s.denied) > 0 {
		line("", "")
		line(bold, "Warnings")
	}
	for _, w := range s.Warnings {
		line(yellow, "! "+w)
	}
	for _, b := range s.broken {
		line("", "? "+b)
	}
	if len(s.denied) > 0 {
		methods := make([]string, len(s.denied))
		for i, f := range s.denied {
			methods[i] = f.Method
		}
		reason := "the user's roles or tenant do not permit it"
		if own != nil {
			reason = "the user's roles do not permit it"
		}
		line("", "? not shown, because "+reason+": "+strings.Join(methods, ", "))
		if s.mayNot(tenantsMethod) {
			line("", "? if the user has a tenant, only what belongs to the tenant is counted: a role that allows "+tenantsMethod+" shows the tenant")
		}
	}
	if own != nil {
		line("", "")
		line("", "This is all that belongs to tenant "+own.Name+".")
		line("", "Load and connections of the whole target are shown only to users without a tenant.")
	}
	return b.String()
}

// tenantsMethod is the proxy's method that reports tenants.
const tenantsMethod = "spdkgate_get_tenants"

// mayNot reports whether the user lacks the permission to call a method that the status needs.
func (s *Status) mayNot(method string) bool {
	return slices.ContainsFunc(s.denied, func(f figures.Failure) bool { return f.Method == method })
}

// stores writes a bar for each lvstore with its used, provisioned and free space.
func (p Page) stores(b *strings.Builder, stores []Store) {
	longestName, barWidth := 20, 24
	if p.Width > 0 { // leaves some room for the figures
		longestName = max(4, min(longestName, p.Width/3))
		barWidth = max(4, min(barWidth, p.Width-longestName-12))
	}
	name := 0
	for _, s := range stores {
		name = max(name, min(longestName, utf8.RuneCountInString(fit(s.Name, 0))))
	}
	for _, s := range stores {
		used, provisioned := share(s.Size-s.Free, s.Size), share(s.Committed, s.Size)
		full, unused := cells(used, barWidth), cells(provisioned, barWidth)
		unused = max(0, unused-full)
		colour := green
		switch {
		case used >= nearlyFull:
			colour = red
		case used >= 0.75, provisioned > 1:
			colour = yellow
		}
		before := fmt.Sprintf("%-*s [", name, fit(s.Name, name))
		bar := strings.Repeat("#", full)
		after := strings.Repeat("-", unused) + strings.Repeat(".", barWidth-full-unused) + "]"
		text := fmt.Sprintf(" %3.0f %% of %s, %.0f %% provisioned, %s, %s", 100*used, bytes(s.Size), 100*provisioned, Plural(s.Volumes, "volume"), Plural(s.Snapshots, "snapshot"))
		if p.Width > 0 {
			text = fit(text, max(1, p.Width-utf8.RuneCountInString(before)-barWidth-1))
		}
		b.WriteString(before + p.colour(colour, bar) + after + text + "\n")
	}
}

func cells(part float64, width int) int { return min(width, int(part*float64(width)+0.5)) }
