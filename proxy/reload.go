package proxy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/gate"
)

// Reload replaces users, roles, tenants, timeouts, request limits, console settings and the
// certificate. Running calls keep the settings with which they began; the remaining calls of a
// batch are refused. If Reload returns an error, nothing has changed. It must not be called
// concurrently.
func (s *Server) Reload(c *config.Config) error {
	old := s.config
	var wrong []error
	for key, changed := range map[string]bool{
		"listen":                 c.Listen != old.Listen,
		"listen_unix":            c.ListenUnix != old.ListenUnix,
		"load_balancers":         !c.LoadBalancers.Equal(old.LoadBalancers),
		"tls.insecure_plaintext": c.TLS.InsecurePlaintext != old.TLS.InsecurePlaintext,
		"target.socket":          c.Target.Socket != old.Target.Socket,
		"target.connections":     c.Target.Connections != old.Target.Connections,
		"target.max_in_flight":   c.Target.MaxInFlight != old.Target.MaxInFlight,
		"target.peer_users":      !slices.Equal(c.Target.PeerUsers, old.Target.PeerUsers),
		"limits.connections":     c.Limits.Connections != old.Limits.Connections || c.Limits.ConnectionsPerSource != old.Limits.ConnectionsPerSource,
		"target.save":            c.Target.Save != old.Target.Save,
		"target.keys":            c.Target.Keys != old.Target.Keys,
		"target.freeze":          c.Target.Freeze != old.Target.Freeze,
		"log":                    c.Log != old.Log,
		"metrics":                !c.Metrics.Equal(old.Metrics),
		"limits.idle":            c.Limits.Idle != old.Limits.Idle,
		"limits.drain":           c.Limits.Drain != old.Limits.Drain,
	} {
		if changed {
			wrong = append(wrong, fmt.Errorf("%s has changed: restart the proxy to apply it", key))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	settings, err := gate.NewSettings(c, s.gate.Schema, s.gate.Settings())
	if err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	if !c.TLS.InsecurePlaintext {
		if err := s.cert.Load(certSource(c), s.log); err != nil {
			return fmt.Errorf("reload: %w", err)
		}
	}
	s.gate.Apply(settings, c.Limits)
	s.events.Wake() // ends the streams of users who are no longer authorized
	s.sessions.SetLimits(settings.SessionLimits())
	s.auditLog.Feed.SetEnabled(c.Console.Enabled)
	if !c.Console.Enabled {
		s.sessions.Clear()
	}
	s.metrics.SetUsers(c.UserNames())
	s.target.LimitUsers(c.Limits.UserInFlight, c.Limits.UsersInFlight)
	return nil
}
