package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/events"
	"github.com/spdkgate/spdkgate/proxy/web"
)

// A follower is a client that reads GET /events.
type follower struct {
	t *testing.T
	*http.Response
	lines chan string // closed when the stream ends
	leave context.CancelFunc
}

// follow opens an event stream. last is the value of Last-Event-ID, or "".
func (s *serving) follow(user, password, last string) *follower {
	ctx, leave := context.WithCancel(context.Background())
	s.t.Cleanup(leave)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/events", nil)
	require.NoError(s.t, err)
	r.SetBasicAuth(user, password)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := (&http.Transport{}).RoundTrip(r)
	require.NoError(s.t, err)
	f := &follower{t: s.t, Response: resp, lines: make(chan string, 10000), leave: leave}
	go func() {
		defer close(f.lines)
		defer func() { _ = resp.Body.Close() }()
		for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
			f.lines <- scan.Text()
		}
	}()
	if resp.StatusCode == http.StatusOK {
		assert.Equal(s.t, ": stream", <-f.lines)
	}
	return f
}

// next returns the next event.
func (f *follower) next() (e events.Event) {
	f.t.Helper()
	var id, kind string
	for line := range f.lines {
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "id":
			id = value
		case "event":
			kind = value
		case "data":
			require.NoError(f.t, json.Unmarshal([]byte(value), &e))
			assert.Equal(f.t, fmt.Sprint(e.ID), id)
			assert.Equal(f.t, e.Type, kind)
			return e
		}
	}
	require.Fail(f.t, "the stream has ended")
	return e
}

// await skips events until it receives an event of this type, and returns it.
func (f *follower) await(kind string) events.Event {
	f.t.Helper()
	for {
		if e := f.next(); e.Type == kind {
			return e
		}
	}
}

// ended waits until the stream ends, and returns the types of the remaining events.
func (f *follower) ended() (types []string) {
	for line := range f.lines {
		if kind, ok := strings.CutPrefix(line, "event: "); ok {
			types = append(types, kind)
		}
	}
	return types
}

// listening waits until the proxy has read the target's notifications for n listeners.
func (s *serving) listening(t *testing.T, n int) {
	looked := func() bool {
		for _, c := range s.target.Calls() {
			if c.Method == notificationsMethod {
				return s.proxy.events.Listeners() == n
			}
		}
		return false
	}
	require.Eventually(t, looked, long, time.Millisecond)
}

func TestEventStreamSendsEvents(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05"} {
		t.Run(release, func(t *testing.T) {
			b := newBench(t, release)
			b.post(`{"id":1,"method":"bdev_malloc_create","params":{"name":"before","num_blocks":2048,"block_size":512}}`)
			s := serve(t, b)
			f := s.follow("admin", adminPassword, "")
			require.Equal(t, http.StatusOK, f.StatusCode)
			assert.Equal(t, "text/event-stream", f.Header.Get("Content-Type"))
			assert.Equal(t, notificationsMethod, b.lastCall()["method"], "the stream is in the log")
			s.listening(t, 1)
			b.fill(t)
			added := f.next()
			assert.Equal(t, "bdev_register", added.Type)
			assert.Equal(t, "m0", added.Object, "events before the subscription are not sent")
			assert.Equal(t, "bdev m0 was added", added.Text)
			volume := f.next()
			assert.Equal(t, "lvs0/v0", volume.Object)
			assert.Regexp(t, `^volume lvs0/v0 \([0-9a-f-]{36}\) was added$`, volume.Text)
			assert.Greater(t, volume.ID, added.ID)
			assert.WithinDuration(t, time.Now(), volume.Time, time.Minute)

			// A client that reconnects receives the events that it has missed.
			f.leave()
			f.ended()
			b.post(`{"id":1,"method":"bdev_lvol_delete","params":{"name":"lvs0/v0"}}`)
			f = s.follow("admin", adminPassword, fmt.Sprint(added.ID))
			assert.Equal(t, volume, f.next())
			gone := f.next()
			assert.Equal(t, "bdev_unregister", gone.Type)
			assert.Equal(t, "lvs0/v0", gone.Object)
			f = s.follow("admin", adminPassword, "17")
			assert.Equal(t, events.Gap, f.next().Type, "of a process before this one")
		})
	}
}

// The proxy queries the target once per second, however many listeners there are, and not at all if
// there are none.
func TestListenersShareAQuery(t *testing.T) {
	b := newBench(t, "v26.05")
	s := serve(t, b)
	var followers []*follower
	for range web.MaxStreamsPerUser {
		followers = append(followers, s.follow("admin", adminPassword, ""))
	}
	assert.Equal(t, http.StatusTooManyRequests, s.follow("admin", adminPassword, "").StatusCode, "streams of a user are bounded")
	s.listening(t, web.MaxStreamsPerUser)
	b.post(createMalloc)
	for _, f := range followers {
		assert.Equal(t, "m0", f.await("bdev_register").Object)
	}
	looks := 0
	for _, c := range b.target.Calls() {
		if c.Method == notificationsMethod {
			looks++
		}
	}
	assert.Less(t, looks, 10*web.MaxStreamsPerUser)
	for _, f := range followers {
		f.leave()
		f.ended()
	}
	require.Eventually(t, func() bool { return b.proxy.events.Listeners() == 0 }, long, time.Millisecond)
}

func TestEventsReportTargetStates(t *testing.T) {
	b := newBench(t, "v26.05")
	b.proxy.web.StreamCheck = time.Hour // keeps comments out of the stream
	s := serve(t, b)
	f := s.follow("admin", adminPassword, "")
	s.listening(t, 1)
	b.fill(t)
	f.await("bdev_register")
	b.target.Crash()
	down := f.await("target_down")
	assert.Equal(t, "target", down.Object)
	assert.Equal(t, down, s.follow("admin", adminPassword, "").next(), "a new listener first receives the lasting conditions")
	require.NoError(t, b.target.Restart())
	up := f.await("target_restarted")
	assert.Contains(t, up.Text, "v26.05")
	created := 0
	// the first events may come from the proxy's first poll
	reported := func() bool {
		b.post(fmt.Sprintf(`{"id":1,"method":"bdev_malloc_create","params":{"name":"after%d","num_blocks":8,"block_size":512}}`, created))
		created++
		for {
			select {
			case line := <-f.lines:
				if line == "event: bdev_register" {
					return true
				}
			default:
				return false
			}
		}
	}
	require.Eventually(t, reported, long, 50*time.Millisecond, "numbers of notifications begin anew")
}

// Full lvstores, nearly exhausted quotas and expiring certificates are reported both when the
// condition begins and when it ends.
func TestBeginningAndEndOfConditionsAreReported(t *testing.T) {
	b := newTenantBench(t, func(c *config.Config) {
		tenant := c.Tenants["team-a"]
		tenant.Quota.Volumes = new(2)
		c.Tenants["team-a"] = tenant
		c.Users[0].TokenHashes = []string{"sha256:" + strings.Repeat("0", 64) + " not_after=" + time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339)}
	})
	b.as(t, "admin", "bdev_lvol_create", `{"lvs_name":"lvs-a","lvol_name":"v1","size_in_mib":1900}`, http.StatusOK)
	b.as(t, "admin", "bdev_lvol_create", `{"lvs_name":"lvs-a","lvol_name":"v2","size_in_mib":4}`, http.StatusOK)
	b.readAnew()
	w := b.proxy.observe.Source()
	admin, team := b.proxy.events.Subscribe(0), b.proxy.events.Subscribe(0)
	taken := func(l *events.Listener, user string) (list []string) {
		scope := b.proxy.gate.Settings().Tenancy.Of(user)
		all, _ := l.Take()
		for _, e := range all {
			if web.SeenBy(scope, e) {
				list = append(list, e.Type+" "+e.Object)
			}
		}
		return list
	}
	w.LookAtConditions(t.Context())
	w.LookAtConditions(t.Context())
	assert.ElementsMatch(t, []string{"certificate_expires token of admin", "lvstore_full lvs-a", "quota_near team-a"}, taken(admin, "admin"), "once")
	assert.ElementsMatch(t, []string{"lvstore_full lvs-a", "quota_near team-a"}, taken(team, teamA))
	assert.Empty(t, taken(b.proxy.events.Subscribe(0), teamB))

	b.as(t, "admin", "bdev_lvol_delete", `{"name":"lvs-a/v1"}`, http.StatusOK)
	b.readAnew() // otherwise, the proxy would read the list of volumes only after a minute
	w.LookAtConditions(t.Context())
	assert.ElementsMatch(t, []string{"lvstore_full_over lvs-a", "quota_near_over team-a"}, taken(team, teamA))
	assert.Empty(t, taken(b.proxy.events.Subscribe(0), teamB))
}

// A tenant receives only events about its own objects, and none about objects with an unknown
// owner.
func TestTenantsSeeOnlyTheirOwnEvents(t *testing.T) {
	b := newTenantBench(t, func(c *config.Config) {
		for i := range c.Users {
			c.Roles["listeners"] = config.Role{Allow: rules(notificationsMethod)}
			if c.Users[i].Tenant != "" {
				c.Users[i].Roles = append(c.Users[i].Roles, "listeners")
			}
		}
	})
	s := serve(t, b)
	f := s.follow(teamA, adminPassword, "")
	require.Equal(t, http.StatusOK, f.StatusCode)
	assert.Equal(t, "team-a", b.lastCall()["tenant"])
	s.listening(t, 1)
	b.as(t, "admin", "bdev_malloc_create", `{"name":"foreign","num_blocks":2048,"block_size":512}`, http.StatusOK)
	b.as(t, "admin", "bdev_lvol_create", `{"lvs_name":"lvs-b","lvol_name":"theirs","size_in_mib":4}`, http.StatusOK)
	b.as(t, "admin", "bdev_lvol_create", `{"lvs_name":"lvs-a","lvol_name":"ours","size_in_mib":4}`, http.StatusOK)
	first := f.next()
	assert.Equal(t, "lvs-a/ours", first.Object)
	for _, e := range []events.Event{
		{Type: "bdev_register", Scope: events.Scope{Kind: "bdev"}}, {Type: "target_down"}, {Type: "x", Scope: events.Scope{Kind: "unknown", Name: "lvs-a"}},
		{Type: "quota_near", Scope: events.Scope{Kind: "tenant", Name: "team-b"}},
	} {
		assert.False(t, web.SeenBy(b.proxy.gate.Settings().Tenancy.Of(teamA), e), e.Type)
	}
}

func TestUnauthorizedListenersAreRefused(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Roles["viewer"] = config.Role{Allow: rules("spdk_get_version")} })
	assert.Equal(t, http.StatusUnauthorized, b.do("GET", "/events", "", "", nil).StatusCode)
	assert.Equal(t, http.StatusUnauthorized, b.do("GET", "/events", "admin", "wrong", nil).StatusCode)
	assert.Equal(t, http.StatusForbidden, b.do("GET", "/events", "viewer", viewerPassword, nil).StatusCode)
	assert.Equal(t, "deny", b.lastCall()["decision"])
	assert.Zero(t, b.proxy.events.Listeners())
	assert.Empty(t, b.reached())
}

// A reload that revokes the permission for a stream ends that stream immediately. Other streams
// stay open.
func TestReloadEndsStreamsWithoutPermission(t *testing.T) {
	b := newBench(t, "v26.05")
	b.proxy.web.StreamCheck = time.Hour // the periodic check must not end the streams
	s := serve(t, b)
	admin, viewer := s.follow("admin", adminPassword, ""), s.follow("viewer", viewerPassword, "")
	s.listening(t, 2)
	changed := *b.config
	changed.Roles = map[string]config.Role{"viewer": {Allow: rules("spdk_get_version")}}
	require.NoError(t, b.proxy.Reload(&changed))
	viewer.ended()
	b.post(createMalloc)
	assert.Equal(t, "m0", admin.await("bdev_register").Object)
	without := changed
	without.Users = changed.Users[1:]
	require.NoError(t, b.proxy.Reload(&without))
	admin.ended()
}

// A proxy that is stopping does not wait for clients to close their event streams.
func TestEventStreamsEndWhenTheServerStops(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.Drain = config.Duration(long) })
	s := serve(t, b)
	f := s.follow("admin", adminPassword, "")
	s.listening(t, 1)
	s.stop()
	f.ended()
	require.NoError(t, <-s.done)
	assert.Empty(t, b.log.Lines(t, "stopping although calls are still running"))
}

// Notifications that SPDK has discarded, and notifications from times without listeners, are
// reported as gaps.
func TestLostNotificationsAreReportedAsGaps(t *testing.T) {
	b := newBench(t, "v26.05")
	b.proxy.events = events.New(10000)
	b.proxy.observe.Events = b.proxy.events
	l := b.proxy.events.Subscribe(0)
	w := b.proxy.observe.Source()
	create := func(n int) {
		for i := range n {
			b.post(fmt.Sprintf(`{"id":1,"method":"bdev_malloc_create","params":{"name":"n%d","num_blocks":8,"block_size":512}}`, i))
			b.post(fmt.Sprintf(`{"id":1,"method":"bdev_malloc_delete","params":{"name":"n%d"}}`, i))
		}
	}
	create(1)
	w.Look(t.Context())
	list, _ := l.Take()
	require.Empty(t, list)
	create(520) // 1,040 notifications
	w.Look(t.Context())
	list, _ = l.Take()
	require.Len(t, list, 1025)
	assert.Equal(t, events.Gap, list[0].Type)
	assert.Contains(t, list[0].Text, "16 notifications")
	w.Pause()
	create(1)
	w.Look(t.Context())
	list, _ = l.Take()
	require.Len(t, list, 1)
	assert.Equal(t, "at least 2 notifications of the target were sent while there were no listeners", list[0].Text)
	create(1)
	w.Look(t.Context())
	list, _ = l.Take()
	assert.Len(t, list, 2)
}

// The manual page lists all event types.
func TestAllEventTypesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/events.md")
	require.NoError(t, err)
	said := map[string]bool{}
	for _, found := range regexp.MustCompile("(?m)^\\| `([a-z_]+)`").FindAllStringSubmatch(string(page), -1) {
		said[found[1]] = true
	}
	delete(said, "type") // the table's header
	source, err := os.ReadFile(filepath.Join("observe", "events.go"))
	require.NoError(t, err)
	made := map[string]bool{"bdev_register": true, "bdev_unregister": true, "bdev_resize": true, events.Gap: true}
	for _, found := range regexp.MustCompile(`Type: "([a-z_]+)"|up\.Type, up\.Text = "([a-z_]+)"`).FindAllStringSubmatch(string(source), -1) {
		made[found[1]+found[2]] = true
	}
	for kind := range made {
		assert.True(t, said[kind], "docs/events.md does not list %s", kind)
	}
	for kind := range said {
		assert.True(t, made[kind] || made[strings.TrimSuffix(kind, "_over")], kind)
	}
}
