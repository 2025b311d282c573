package exports

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema/printable"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// readAtOnce is the number of exports whose connections are queried concurrently.
const readAtOnce = 32

// An Export describes one namespace of a subsystem, or a subsystem without namespaces.
type Export struct {
	// LVSTORE/LVOL, or the name of a bdev that is not a logical volume; "" if there is no namespace
	Volume    string   `json:"volume"`
	UUID      string   `json:"uuid,omitempty"`
	NQN       string   `json:"nqn"`
	Serial    string   `json:"serial_number,omitempty"`
	ANA       bool     `json:"ana_reporting"` // needed for snapshots of volumes in use
	AnyHost   bool     `json:"any_host"`
	Hosts     []Host   `json:"hosts"`
	Listeners []string `json:"listeners"`
	Connected []string `json:"connected_hosts"` // null if not requested or not readable
}

// A Host describes a host admitted to an export.
type Host struct {
	NQN string `json:"nqn"`
	Key string `json:"dhchap_key,omitempty"`
}

// List lists the NVMe-oF exports, sorted by volume. If connections is set, it also lists the
// connected hosts; to report these, SPDK briefly interrupts the admin commands of each subsystem.
func List(ctx context.Context, rpc *spdkrpc.Client, connections bool) ([]Export, error) {
	t := target{rpc}
	subsystems, _, err := t.subsystems(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]string{} // names by UUID
	volumes, err := rpc.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
	if err != nil && !unknowable(err) {
		return nil, fmt.Errorf("list the volumes: %w", err)
	}
	for _, v := range volumes {
		names[v.UUID] = v.Alias
	}
	exports := []Export{}
	var mu sync.Mutex
	reading, rctx := errgroup.WithContext(ctx)
	reading.SetLimit(readAtOnce)
	for i := range subsystems {
		reading.Go(func() error {
			var connected []string
			var err error
			if connections {
				if connected, err = t.connected(rctx, subsystems[i].NQN); err != nil && !gone(err) && !unknowable(err) {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			exports = append(exports, exportsOf(&subsystems[i], names, connected, connections && err == nil)...)
			return nil
		})
	}
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(exports, func(a, b Export) int {
		return cmp.Or(cmp.Compare(a.Volume, b.Volume), cmp.Compare(a.NQN, b.NQN))
	})
	return exports, nil
}

func exportsOf(sub *spdkrpc.NVMfSubsystem, names map[string]string, connected []string, known bool) (list []Export) {
	one := Export{NQN: sub.NQN, AnyHost: sub.AllowAnyHost, Hosts: []Host{}, Listeners: []string{}, Connected: connected}
	if known && connected == nil {
		one.Connected = []string{}
	}
	if sub.SerialNumber != nil {
		one.Serial = *sub.SerialNumber
	}
	for _, h := range sub.Hosts {
		host := Host{NQN: h.NQN}
		if h.DHCHAPKey != nil {
			host.Key = *h.DHCHAPKey
		}
		one.Hosts = append(one.Hosts, host)
	}
	for _, at := range portalsOf(sub) {
		one.Listeners = append(one.Listeners, strings.ToLower(at.Transport)+" "+at.String())
	}
	for _, n := range sub.Namespaces {
		of := one
		of.Volume, of.ANA = cmp.Or(names[n.BdevName], n.BdevName), n.Anagrpid != nil
		if n.UUID != nil {
			of.UUID = *n.UUID
		}
		list = append(list, of)
	}
	if len(list) == 0 {
		list = []Export{one}
	}
	return list
}

// JSON formats exports for scripts.
func JSON(exports []Export) ([]byte, error) {
	text, err := json.MarshalIndent(exports, "", "  ")
	return append(text, '\n'), err
}

// Table formats exports for people. If connections is set, it includes the connected hosts.
func Table(exports []Export, connections bool) string {
	if len(exports) == 0 {
		return "the target has no export over NVMe-oF that this user may see\n"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(cells ...string) {
		if !connections {
			cells = cells[:4]
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	row("VOLUME", "NQN", "HOSTS", "LISTENERS", "CONNECTED")
	var notes []string
	for _, e := range exports {
		var hosts []string
		for _, h := range e.Hosts {
			text := h.NQN
			if h.Key != "" {
				text += " (key " + h.Key + ")"
			}
			hosts = append(hosts, text)
		}
		if e.AnyHost {
			hosts = append(hosts, "any host")
		}
		connected := cell(e.Connected)
		if e.Connected == nil {
			connected = "?"
		}
		row(cell([]string{e.Volume}), cell([]string{e.NQN}), cell(hosts), cell(e.Listeners), connected)
		switch {
		case e.Volume == "":
			notes = append(notes, e.NQN+" exports nothing, for example because its volume was deleted. If it is not needed, delete it (spdk-proxy unexport VOLUME --nqn "+quote(e.NQN)+")")
		case !e.ANA:
			notes = append(notes, e.NQN+" has no ANA reporting: no snapshot of its volume is possible while a host is connected")
		}
		if e.AnyHost {
			notes = append(notes, e.NQN+" admits every host that reaches its listeners")
		}
	}
	_ = w.Flush() // writing to a strings.Builder cannot fail
	for _, n := range notes {
		b.WriteString("! " + printable.String(n) + "\n")
	}
	return b.String()
}

// cell formats a list for a table cell. An empty list becomes a dash.
func cell(list []string) string {
	text := printable.String(strings.Join(list, ", "))
	return cmp.Or(text, "-")
}
