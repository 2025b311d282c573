package browser

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// volumeCount is the number of volumes on the target, not counting snapshots and clones.
const volumeCount = 10000

// teamVolumes is the number of the tenant's volumes.
const teamVolumes = 24

const password = "only for this run"

// A testbed is a simulated target with volumes, and an spdk-proxy in front of it.
type testbed struct {
	dir    string // contains the programs and the proxy's certificate
	url    string
	target *caller
	log    *logFile
	hash   string // hash of the password
	calls  gate   // can delay calls to the target
	stops  []func()
}

const configuration = `
listen: "%[1]s"
tls: {self_signed_dir: %[2]s}
target: {socket: %[2]s/busy.sock}
limits: {auth_failures_per_minute: 1000}
users:
  - {name: admin, password_hash: "%[3]s", roles: [admin]}
  - {name: viewer, password_hash: "%[3]s", roles: [read-only]}
  - {name: operator, password_hash: "%[3]s", roles: [operator]}
  - {name: team, password_hash: "%[3]s", roles: [csi-controller], tenant: team}
roles:
  operator:
    extends: [read-only]
    allow:
      - method: bdev_lvol_create
        where: {/lvs_name: {enum: [scratch]}}
tenants:
  team: {lvstores: [team]}
log: {format: json}
console: {grafana: "https://grafana.example/d/spdk?var-server=storage-1&var-volume={volume}&var-uuid={uuid}"}
`

const repository = "../../.."

func newTestbed(dir string) (w *testbed, err error) {
	w = &testbed{dir: dir, log: &logFile{}}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	proxy, sim := filepath.Join(dir, "spdk-proxy"), filepath.Join(dir, "spdk-sim")
	if err := build(dir); err != nil {
		return w, fmt.Errorf("build: %w", err)
	}
	socket := filepath.Join(dir, "spdk.sock")
	if err := w.start(command(dir, sim, "--socket", socket, "--no-auto-examine")); err != nil {
		return w, err
	}
	if w.target, err = dial(socket); err != nil {
		return w, err
	}
	if err := fill(w.target); err != nil {
		return w, err
	}
	stop, err := relay(filepath.Join(dir, "busy.sock"), socket, &w.calls)
	if err != nil {
		return w, err
	}
	w.stops = append(w.stops, stop)
	hash := command(dir, proxy, "hash-password")
	hash.Stdin = strings.NewReader(password + "\n")
	hash.Stdout = nil
	out, err := hash.Output()
	if err != nil {
		return w, fmt.Errorf("hash a password: %w", err)
	}
	address, err := freeAddress()
	if err != nil {
		return w, err
	}
	w.hash = strings.TrimSpace(string(out))
	return w, w.serve(proxy, dir, address, fmt.Sprintf(configuration, address, dir, w.hash))
}

// serve starts the proxy with a configuration.
func (w *testbed) serve(proxy, dir, address, configuration string) error {
	config := filepath.Join(dir, "spdk-proxy.yaml")
	if err := os.WriteFile(config, []byte(configuration), 0o600); err != nil {
		return err
	}
	server := command(dir, proxy, "serve", "--config", config)
	server.Stdout, server.Stderr = w.log, w.log
	if err := w.start(server); err != nil {
		return err
	}
	w.url = "https://" + address
	if err := w.waitReady(); err != nil {
		return fmt.Errorf("%w\n%s", err, w.log.tail())
	}
	return nil
}

var programDir string // contains the programs, once they are built

// buildOnce builds the programs once for all tests.
var buildOnce = sync.OnceValue(func() (err error) {
	if programDir, err = os.MkdirTemp("", "programs"); err != nil {
		return err
	}
	return command(repository, "go", "build", "-ldflags", "-X main.version=dev", "-o", programDir, "./cmd/spdk-proxy", "./cmd/spdk-sim").Run()
})

// build puts the programs into a directory.
func build(dir string) error {
	if err := buildOnce(); err != nil {
		return err
	}
	for _, name := range []string{"spdk-proxy", "spdk-sim"} {
		if err := os.Link(filepath.Join(programDir, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
	return cmd
}

func (w *testbed) start(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	w.stops = append(w.stops, func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	return nil
}

func (w *testbed) close() {
	for i := len(w.stops) - 1; i >= 0; i-- {
		w.stops[i]()
	}
	w.stops = nil
}

func (w *testbed) waitReady() error {
	client := insecureClient()
	deadline := time.Now().Add(time.Minute)
	for {
		response, err := client.Get(w.url + "/readyz")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("/readyz: %s", response.Status)
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond) // another process, which cannot notify us
	}
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// A logFile stores the proxy's log.
type logFile struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logFile) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *logFile) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.text.String()
	return text[max(0, len(text)-4000):]
}

// refused returns the log lines for a user's refused calls.
func (l *logFile) refused(user string) []string {
	return l.lines(func(line string) bool {
		return strings.Contains(line, `"user":"`+user+`"`) && strings.Contains(line, `"decision":"deny"`)
	})
}

// failed returns the log lines for a user's refused and failed calls, except those that the browser
// aborted (status 499).
func (l *logFile) failed(user string) []string {
	return l.lines(func(line string) bool {
		return strings.Contains(line, `"user":"`+user+`"`) && (strings.Contains(line, `"decision":"deny"`) || strings.Contains(line, `"error":`)) && !strings.Contains(line, `"status":499`)
	})
}

func (l *logFile) lines(chosen func(string) bool) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if chosen(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// A caller makes calls on a UNIX socket, one at a time.
type caller struct {
	conn net.Conn
	from *json.Decoder
	id   int
}

func dial(socket string) (*caller, error) {
	for deadline := time.Now().Add(time.Minute); ; {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			return &caller{conn: conn, from: json.NewDecoder(bufio.NewReaderSize(conn, 1<<16))}, nil
		}
		if time.Now().After(deadline) {
			return nil, err
		}
		time.Sleep(20 * time.Millisecond) // another process, which cannot notify us
	}
}

type object = map[string]any

type reply struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (c *caller) call(method string, params object) (json.RawMessage, error) {
	c.id++
	request := object{"jsonrpc": "2.0", "id": c.id, "method": method}
	if params != nil {
		request["params"] = params
	}
	if err := json.NewEncoder(c.conn).Encode(request); err != nil {
		return nil, err
	}
	var r reply
	if err := c.from.Decode(&r); err != nil {
		return nil, err
	}
	if r.Error != nil {
		return nil, fmt.Errorf("%s %v: %s (%d)", method, params, r.Error.Message, r.Error.Code)
	}
	return r.Result, nil
}

// fill creates the target's lvstores, volumes, snapshots, clones and exports.
func fill(c *caller) (err error) {
	do := func(method string, params object) {
		if err == nil {
			_, err = c.call(method, params)
		}
	}
	const gib = 1 << 30
	for _, store := range []struct {
		disk, name string
		size       int
	}{{"nvme0n1", "ssd", 4096}, {"nvme1n1", "archive", 512}, {"nvme2n1", "scratch", 1024}, {"nvme3n1", "team", 256}} {
		do("bdev_null_create", object{"name": store.disk, "num_blocks": store.size * (gib / 4096), "block_size": 4096})
		do("bdev_lvol_create_lvstore", object{"bdev_name": store.disk, "lvs_name": store.name})
	}
	sizes := []int{512, 1024, 2048, 4096, 1024, 10240}
	for i := range volumeCount {
		store, name := "ssd", fmt.Sprintf("vol-%05d", i)
		if i%10 == 3 {
			store = "scratch"
		}
		do("bdev_lvol_create", object{"lvol_name": name, "size_in_mib": sizes[i%len(sizes)], "lvs_name": store, "thin_provision": i%97 != 5})
		if i%40 == 0 && err == nil {
			alias := store + "/" + name
			for n := range 1 + i/40%3 {
				do("bdev_lvol_snapshot", object{"lvol_name": alias, "snapshot_name": fmt.Sprintf("%s-daily-%d", name, n+1)})
			}
			if i%80 == 0 {
				do("bdev_lvol_clone", object{"snapshot_name": alias + "-daily-1", "clone_name": name + "-test"})
			}
		}
		if i%400 == 1 {
			do("bdev_set_qos_limit", object{"name": store + "/" + name, "rw_ios_per_sec": 20000, "rw_mbytes_per_sec": 200})
		}
	}
	for i := range teamVolumes {
		do("bdev_lvol_create", object{"lvol_name": fmt.Sprintf("team-vol-%02d", i), "size_in_mib": 4096, "lvs_name": "team", "thin_provision": i%4 != 0})
	}
	for i := range 11 {
		do("bdev_lvol_create", object{"lvol_name": fmt.Sprintf("backup-%02d", i), "size_in_mib": 40 * 1024, "lvs_name": "archive", "thin_provision": false})
	}
	do("nvmf_create_transport", object{"trtype": "TCP"})
	for i := range 120 {
		nqn := fmt.Sprintf("nqn.2026-01.example.storage:server-%03d", i)
		do("nvmf_create_subsystem", object{"nqn": nqn, "serial_number": fmt.Sprintf("SPDK%08d", i), "ana_reporting": true})
		do("nvmf_subsystem_add_listener", object{"nqn": nqn, "listen_address": object{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "4420"}})
		do("nvmf_subsystem_add_host", object{"nqn": nqn, "host": fmt.Sprintf("nqn.2014-08.org.nvmexpress:uuid:7d9c0a8e-5b1f-4c02-9a57-%012d", i)})
		for n := range 4 {
			volume := i*8 + n*2 + 12
			store := "ssd"
			if volume%10 == 3 {
				store = "scratch"
			}
			do("nvmf_subsystem_add_ns", object{"nqn": nqn, "namespace": object{"bdev_name": fmt.Sprintf("%s/vol-%05d", store, volume)}})
		}
	}
	do("iscsi_create_portal_group", object{"tag": 1, "portals": []object{{"host": "127.0.0.1", "port": "3260"}}})
	do("iscsi_create_initiator_group", object{"tag": 1, "initiators": []string{"ANY"}, "netmasks": []string{"192.0.2.0/24"}})
	for i := range 12 {
		do("iscsi_create_target_node", object{
			"name": fmt.Sprintf("iqn.2026-01.example.storage:backup-%02d", i), "alias_name": fmt.Sprintf("backup %d", i),
			"pg_ig_maps": []object{{"pg_tag": 1, "ig_tag": 1}}, "luns": []object{{"bdev_name": fmt.Sprintf("archive/backup-%02d", i%11), "lun_id": 0}},
			"queue_depth": 64, "disable_chap": true,
		})
	}
	return err
}

var (
	shared     *testbed
	sharedDir  string
	sharedOnce sync.Once
	errShared  error
)

func TestMain(m *testing.M) {
	code := m.Run()
	if shared != nil {
		shared.close()
	}
	if sharedDir != "" {
		_ = os.RemoveAll(sharedDir)
	}
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
	os.Exit(code)
}

func sharedTestbed(t *testing.T) *testbed {
	t.Helper()
	sharedOnce.Do(func() {
		if sharedDir, errShared = os.MkdirTemp("", "browser"); errShared == nil {
			began := time.Now()
			shared, errShared = newTestbed(sharedDir)
			fmt.Printf("testbed with %d volumes created in %.1f s\n", volumeCount, time.Since(began).Seconds())
		}
	})
	if errShared != nil {
		t.Fatal(errShared)
	}
	return shared
}
