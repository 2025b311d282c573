package observe

import (
	"context"
	"time"

	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/target"
)

// loadsWritten reports whether the target loads bdevs from data that hosts write to volumes, or
// returns nil if this is unknown.
func loadsWritten(s target.State) *bool {
	if s.Examination == target.ExaminationUnknown {
		return nil
	}
	return new(s.Examination == target.ExaminesAll)
}

// State returns the current values for the metrics. It is called at each scrape.
func (o *Observer) State() metrics.State {
	ctx, cancel := context.WithTimeout(context.Background(), probeWait)
	defer cancel()
	current := o.Gate.Settings()
	seen, err := o.Gate.Target.Probe(ctx)
	connections, inFlight := o.Gate.Counts()
	loads := map[string]metrics.Load{}
	for user, l := range o.Gate.Target.Loads() {
		loads[user] = metrics.Load(l)
	}
	return metrics.State{
		Connections: connections, Closed: o.Gate.Clients.Closed(), InFlight: inFlight, Sessions: o.Sessions(), Certificates: o.Expiries(), Revocations: current.CRLsExpire,
		Tokens: current.TokensExpire, Learning: current.Learning,
		Target: metrics.TargetState{
			Up: err == nil && seen.Phase != target.Unreachable, UntrustedPeer: seen.UntrustedPeer, LoadsWritten: loadsWritten(seen), LoadsAccepted: current.AcceptLoading, Shared: o.Shared(), Release: releaseOf(seen), Phase: string(seen.Phase), Reconnects: seen.Reconnects,
			Connections: o.Gate.Target.Connections(), Loads: loads,
			LimitsOf: func(user string) metrics.UserLimits {
				return metrics.UserLimits{InFlight: o.Gate.Target.LoadOf(user).MaxInFlight, PerSecond: o.Gate.PerSecond(user)}
			},
		},
		Saved: o.saved(),
	}
}

func (o *Observer) saved() *metrics.SavedState {
	if !o.Gate.Execute.Saves() {
		return nil
	}
	now := o.Gate.Execute.Saver().Status()
	return &metrics.SavedState{At: now.SavedAt, Pending: now.Pending, Failed: now.Failed, Missing: len(now.Missing), Lost: len(now.NotRestorable), Chosen: !now.Chosen.IsZero()}
}

// releaseOf returns the target's release, or "" if it is unknown.
func releaseOf(s target.State) string {
	if !s.Release.Known() {
		return ""
	}
	return s.Release.String()
}

// Expiries returns when the certificates on which clients depend expire.
func (o *Observer) Expiries() map[string]time.Time {
	all := map[string]time.Time{}
	if shown := o.Cert.Current(); shown != nil && shown.Leaf != nil {
		all["server"] = shown.Leaf.NotAfter
	}
	if at := o.Gate.Settings().ClientCAsExpire; !at.IsZero() {
		all["client_ca"] = at
	}
	return all
}
