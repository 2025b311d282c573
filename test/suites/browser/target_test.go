package browser

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"
)

// relay listens on a socket in front of the simulated target, and adds device I/O with latencies,
// busy reactors, connected hosts, and NVMe devices, which the simulation lacks. Tests can delay
// calls through the gate. The returned function stops the relay.
func relay(path, target string, calls *gate) (stop func(), err error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			r := &relayed{client: client, server: server, calls: calls, asked: map[string]string{}}
			go r.requests()
			go r.answers()
		}
	}()
	return func() { _ = listener.Close() }, nil
}

// A gate delays the calls of one method while it is shut. It is open initially.
type gate struct {
	mu     sync.Mutex
	method string        // the method whose calls wait
	opened chan struct{} // closed when the gate opens; nil while the gate is open
	nobody bool          // report no connected hosts
	asIs   bool          // change no responses

	histograms map[string]time.Time // by bdev, the time when its histogram was enabled
	nvme       nvmeDevices
}

// histogram switches a bdev's histogram on or off.
func (g *gate) histogram(bdev string, on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.histograms == nil {
		g.histograms = map[string]time.Time{}
	}
	if delete(g.histograms, bdev); on {
		g.histograms[bdev] = time.Now()
	}
}

// counts returns a histogram of 980 operations per second that took 0.26 ms and 20 that took 4.2
// ms. If the histogram is off, it returns nil.
func (g *gate) counts(bdev string) any {
	g.mu.Lock()
	defer g.mu.Unlock()
	since, on := g.histograms[bdev]
	if !on {
		return nil
	}
	seconds := uint64(time.Since(since) / time.Second)
	raw := make([]byte, 8*58*128)
	binary.NativeEndian.PutUint64(raw[8*12*128:], 980*seconds)
	binary.NativeEndian.PutUint64(raw[8*16*128:], 20*seconds)
	return object{"histogram": base64.StdEncoding.EncodeToString(raw), "granularity": 7, "min_range": 0, "max_range": 57, "tsc_rate": tickRate}
}

// connect sets whether hosts are connected.
func (g *gate) connect(hosts bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nobody = !hosts
}

func (g *gate) connected() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.nobody
}

// unchanged makes the relay pass all responses on as they are.
func (g *gate) unchanged() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asIs = true
}

func (g *gate) changes() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.asIs
}

// shut delays a method's calls until open is called.
func (g *gate) shut(method string) (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	opened := make(chan struct{})
	g.method, g.opened = method, opened
	return sync.OnceFunc(func() { close(opened) })
}

// pass waits until the gate is open for a method.
func (g *gate) pass(method string) {
	g.mu.Lock()
	opened, waits := g.opened, g.method == method
	g.mu.Unlock()
	if opened != nil && waits {
		<-opened
	}
}

type relayed struct {
	client, server net.Conn
	calls          *gate
	mu             sync.Mutex
	asked          map[string]string // methods by id
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method,omitempty"`
	Params struct {
		NQN    string `json:"nqn"`
		Name   string `json:"name"`
		TrAddr string `json:"traddr"`
		Enable bool   `json:"enable"`
	} `json:"params"`
}

func (r *relayed) close() { _, _ = r.client.Close(), r.server.Close() }

func (r *relayed) write(text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.client.Write(text)
}

func (r *relayed) requests() {
	defer r.close()
	for from := json.NewDecoder(bufio.NewReader(r.client)); ; {
		var text json.RawMessage
		if from.Decode(&text) != nil {
			return
		}
		var m message
		_ = json.Unmarshal(text, &m)
		r.calls.pass(m.Method)
		if !r.calls.changes() {
			m.Method = ""
		}
		switch m.Method {
		case "framework_get_reactors":
			r.write(answer(m.ID, reactors()))
			continue
		case "nvmf_subsystem_get_controllers":
			list := []object{}
			if r.calls.connected() {
				list = controllers(m.Params.NQN)
			}
			r.write(answer(m.ID, list))
			continue
		case "bdev_enable_histogram":
			r.calls.histogram(m.Params.Name, m.Params.Enable)
		case "bdev_get_histogram":
			if counts := r.calls.counts(m.Params.Name); counts != nil {
				r.write(answer(m.ID, counts))
				continue
			}
		case "bdev_nvme_attach_controller", "bdev_nvme_detach_controller", "bdev_get_bdevs":
			text = r.nvmeRequest(m, text)
		case "bdev_get_iostat":
			r.mu.Lock()
			r.asked[string(m.ID)] = m.Method
			r.mu.Unlock()
		}
		if _, err := r.server.Write(text); err != nil {
			return
		}
	}
}

func answer(id json.RawMessage, result any) []byte {
	text, err := json.Marshal(object{"jsonrpc": "2.0", "id": id, "result": result})
	if err != nil {
		panic(err) // the values are defined in this file
	}
	return text
}

// answers forwards the target's responses, and replaces only the statistics and NVMe devices in
// them.
func (r *relayed) answers() {
	defer r.close()
	for from := json.NewDecoder(bufio.NewReaderSize(r.server, 1<<20)); ; {
		var text json.RawMessage
		if err := from.Decode(&text); err != nil {
			_ = err == io.EOF
			return
		}
		if len(text) < 1<<16 || bytes.Contains(text[:1<<10], []byte(`"tick_rate"`)) || r.calls.nvme.any() {
			var m struct {
				ID     json.RawMessage `json:"id"`
				Result json.RawMessage `json:"result"`
			}
			_ = json.Unmarshal(text, &m)
			r.mu.Lock()
			method := r.asked[string(m.ID)]
			delete(r.asked, string(m.ID))
			r.mu.Unlock()
			switch {
			case method == "" || m.Result == nil:
			case method == "bdev_get_iostat":
				text = answer(m.ID, busy(m.Result))
			default:
				text = answer(m.ID, r.calls.nvme.result(method, m.Result))
			}
		}
		r.write(text)
	}
}

const tickRate = 1_000_000_000

var began = time.Now().Add(-41 * time.Hour)

// busy adds I/O to statistics.
func busy(result json.RawMessage) any {
	var stat object
	if json.Unmarshal(result, &stat) != nil {
		return result
	}
	stat["tick_rate"], stat["ticks"] = tickRate, time.Since(began).Nanoseconds()
	seconds := time.Since(began).Seconds()
	bdevs, _ := stat["bdevs"].([]any)
	for i, b := range bdevs {
		bdev, _ := b.(map[string]any)
		if i == 400 {
			break // the other reactors are idle
		}
		share := 1 / float64(i+1)
		wave := seconds + 14*math.Sin(seconds/23+float64(i)) + 2*math.Sin(seconds/4.1)
		reads, writes := 42000*share*wave, 17000*share*(seconds+9*math.Sin(seconds/17))
		for key, value := range map[string]float64{
			"num_read_ops": reads, "bytes_read": reads * 8192, "num_write_ops": writes, "bytes_written": writes * 16384,
			"read_latency_ticks": reads*118000 + 42000*share*31*9000*(1-math.Cos(seconds/31)), "write_latency_ticks": writes * 64000,
		} {
			bdev[key] = uint64(value)
		}
	}
	return stat
}

func reactors() any {
	list := []object{}
	for core, share := range []float64{0.71, 0.46, 0.38, 0.09} {
		total := time.Since(began).Seconds() * tickRate
		list = append(list, object{
			"lcore": core, "tid": 4000 + core, "busy": uint64(total * share), "idle": uint64(total * (1 - share)), "in_interrupt": false, "irq": 0, "sys": 0, "usr": 0,
			"lw_threads": []object{},
		})
	}
	return object{"tick_rate": tickRate, "pid": 4000, "reactors": list}
}

func controllers(nqn string) []object {
	var server int
	if _, err := fmt.Sscanf(nqn, "nqn.2026-01.example.storage:server-%d", &server); err != nil || server%3 == 2 {
		return []object{}
	}
	host := fmt.Sprintf("nqn.2014-08.org.nvmexpress:uuid:7d9c0a8e-5b1f-4c02-9a57-%012d", server)
	return []object{{"cntlid": 1, "cntrltype": "io", "hostnqn": host, "hostid": fmt.Sprintf("7d9c0a8e-5b1f-4c02-9a57-%012d", server), "num_io_qpairs": 8}}
}
