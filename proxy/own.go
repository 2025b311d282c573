package proxy

import (
	"context"
	"encoding/json"

	"github.com/spdkgate/spdkgate/proxy/console"
	"github.com/spdkgate/spdkgate/proxy/execute"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/stream"
	"github.com/spdkgate/spdkgate/proxy/web"
)

// ownMethods returns the table of the methods and pages that the proxy serves itself. They pass
// through the same stages as SPDK's methods (see gate.Gate.Perform), except where the fields of
// gate.Own specify a difference.
func (s *Server) ownMethods() []gate.Own {
	const (
		save, keys = "target.save", "target.keys"
		post, get  = "POST", "GET"
	)
	saves := func() bool { return s.execute.Saves() }
	stores := func() bool { return s.execute.StoresKeys() }
	return []gate.Own{
		{Name: "spdkgate_key_add", Key: keys, Enabled: stores, Serve: s.byExecutor((*execute.Executor).AddKey)},
		{Name: "spdkgate_key_remove", Key: keys, Enabled: stores, Serve: s.byExecutor((*execute.Executor).RemoveKey)},
		{Name: "spdkgate_lvol_snapshot", Serve: s.byExecutor((*execute.Executor).TakeSnapshots)},
		{Name: "spdkgate_lvol_snapshot_barrier", Serve: s.byExecutor((*execute.Executor).PassBarrier)},
		{Name: "spdkgate_lvol_delete", Serve: s.byExecutor((*execute.Executor).DeleteSafely)},
		{Name: "spdkgate_lvol_changes", Serve: s.byExecutor((*execute.Executor).ReadChanges)},
		{Name: "spdkgate_target_get_info", Unexamined: true, Serve: s.byExecutor((*execute.Executor).TargetInfo)},
		{Name: "spdkgate_get_tenants", Tenants: gate.Filtered, Serve: func(ctx context.Context, r *gate.Request) (any, error) {
			return s.execute.ListTenants(ctx, r.Command, r.Settings.Tenancy)
		}},

		// The status does not depend on the target, because administrators need it most while the
		// target is unreachable.
		{Name: "spdkgate_config_get_status", Target: gate.Never, Slot: true, Key: save, Enabled: saves, Serve: s.byExecutor((*execute.Executor).SavedStatus)},
		{Name: "spdkgate_config_await", Key: save, Enabled: saves, Serve: s.byExecutor((*execute.Executor).AwaitSaved)},
		{Name: "spdkgate_config_list_saved", Key: save, Enabled: saves, Serve: s.byExecutor((*execute.Executor).ListSaved)},
		{Name: "spdkgate_config_get_saved", Key: save, Enabled: saves, Serve: s.byExecutor((*execute.Executor).GetSaved)},
		{Name: "spdkgate_config_save", Key: save, Enabled: saves, Serve: s.byExecutor((*execute.Executor).Save)},

		{Name: "rpc.discover", Users: gate.Everybody, Tenants: gate.Unscoped, Slot: true, Serve: s.gate.Discover},
		{Name: "spdkgate_get_io_history", Target: gate.ForTenants, Slot: true, Key: "metrics.io_history: true", Enabled: s.observe.KeepsIO, Serve: s.observe.IOHistory},
		{Name: "spdkgate_get_limits", Target: gate.Never, Tenants: gate.Unscoped, Serve: s.gate.Limits},
		{Name: "spdkgate_get_metrics", Target: gate.Never, Slot: true, Serve: s.observe.Metrics},
		{Name: "spdkgate_get_target_metrics", Target: gate.Never, Slot: true, Serve: s.observe.TargetMetrics},

		// The rows below are pages.
		{Name: web.NotificationsMethod, Endpoint: get + " /events", Target: gate.ForTenants, Tenants: gate.Filtered,
			Serve: func(_ context.Context, r *gate.Request) (any, error) { return s.web.OpenStream(r) }},
		{Name: stream.Method, Endpoint: get + " " + web.StreamPath, Users: gate.Everybody, Target: gate.Never, Tenants: gate.Unscoped,
			Serve: func(_ context.Context, r *gate.Request) (any, error) { return s.streams.Open(r) }},
		{Name: console.SignInMethod, Endpoint: post + " /console/session", Users: gate.Everybody, Target: gate.Never, Tenants: gate.Unscoped, Serve: s.byConsole((*console.Server).SignIn)},
		{Name: console.SignOutMethod, Endpoint: "DELETE /console/session", Users: gate.Everybody, Target: gate.Never, Tenants: gate.Unscoped, Serve: s.byConsole((*console.Server).SignOut)},
		{Name: console.SessionMethod, Endpoint: get + " /console/session", Users: gate.Everybody, Target: gate.Never, Tenants: gate.Unscoped, Unlogged: true, Serve: s.byConsole((*console.Server).Session)},
		{Name: console.AccessMethod, Endpoint: get + " /console/access", Users: gate.Everybody, Target: gate.Never, Tenants: gate.Unscoped, Slot: true, Serve: s.byConsole((*console.Server).Access)},
		{Name: console.ExplainMethod, Endpoint: post + " /console/explain", Users: gate.Everybody, Target: gate.Never, Tenants: gate.Unscoped, Slot: true, Serve: s.byConsole((*console.Server).Explain)},
		{Name: console.AuditMethod, Endpoint: get + " /console/audit", Users: gate.Administrators, Target: gate.Never, Tenants: gate.Unscoped, Serve: s.byConsole((*console.Server).Audit)},
	}
}

// byExecutor adapts a method of Executor to the table, which is created before the Executor.
func (s *Server) byExecutor(serve func(*execute.Executor, context.Context, execute.Command) (json.RawMessage, error)) func(context.Context, *gate.Request) (any, error) {
	return func(ctx context.Context, r *gate.Request) (any, error) { return serve(s.execute, ctx, r.Command) }
}

// byConsole adapts a method of the console's Server to the table, which is created before the
// console's Server.
func (s *Server) byConsole(serve func(*console.Server, context.Context, *gate.Request) (any, error)) func(context.Context, *gate.Request) (any, error) {
	return func(ctx context.Context, r *gate.Request) (any, error) { return serve(s.console, ctx, r) }
}
