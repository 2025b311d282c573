package figures

import (
	"encoding/json"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// readNVMfStats parses the result of nvmf_get_stats.
func (r *Reader) readNVMfStats(raw json.RawMessage) error {
	var stats spdkrpc.NVMfStats
	if err := json.Unmarshal(raw, &stats); err != nil {
		return err
	}
	r.nvmf.PollGroups = nil
	for _, g := range stats.PollGroups {
		r.nvmf.PollGroups = append(r.nvmf.PollGroups, PollGroup{
			Name: g.Name, AdminQueuePairs: uint64(g.CurrentAdminQpairs), IOQueuePairs: uint64(g.CurrentIOQpairs),
			AdminQueuePairsTotal: uint64(g.AdminQpairs), IOQueuePairsTotal: uint64(g.IOQpairs), Pending: g.PendingBdevIO, Completed: g.CompletedNVMeIO,
		})
	}
	return nil
}

// readSubsystems parses the result of nvmf_get_subsystems.
func (r *Reader) readSubsystems(raw json.RawMessage) error {
	n := NVMf{Known: true, Listeners: map[string]int{}, PollGroups: r.nvmf.PollGroups}
	err := read(raw, func(t *text, at int) int {
		return t.items(at, func(at int) int {
			var kind string
			var one NVMf
			anyHost := false
			var transports []string
			end := t.members(at, func(name string, at int) int {
				switch name {
				case "subtype":
					return t.name(at, &kind)
				case "allow_any_host":
					return t.flag(at, &anyHost)
				case "hosts":
					return t.count(at, &one.Hosts)
				case "namespaces":
					return t.count(at, &one.Namespaces)
				case "listen_addresses":
					return t.items(at, func(at int) int {
						transport := ""
						end := t.members(at, func(name string, at int) int {
							if name != "trtype" {
								return t.Skip(at)
							}
							return t.name(at, &transport)
						})
						transports = append(transports, transport)
						return end
					})
				}
				return t.Skip(at)
			})
			if kind == "Discovery" {
				return end
			}
			n.Subsystems++
			n.Namespaces += one.Namespaces
			n.Hosts += one.Hosts
			if anyHost {
				n.AnyHosts++
			}
			for _, transport := range transports {
				n.Listeners[strings.Clone(transport)]++
			}
			return end
		})
	})
	if err == nil {
		r.nvmf = n
	}
	return err
}

// readTargetNodes parses the result of iscsi_get_target_nodes.
func (r *Reader) readTargetNodes(raw json.RawMessage) error {
	i := ISCSI{Known: true, Connections: r.iscsi.Connections}
	err := read(raw, func(t *text, at int) int {
		return t.items(at, func(at int) int {
			i.TargetNodes++
			return t.members(at, func(name string, at int) int {
				if name == "luns" {
					return t.count(at, &i.LUNs)
				}
				return t.Skip(at)
			})
		})
	})
	if err == nil {
		r.iscsi = i
	}
	return err
}

// readISCSIConnections parses the result of iscsi_get_connections.
func (r *Reader) readISCSIConnections(raw json.RawMessage) error {
	n := 0
	err := read(raw, func(t *text, at int) int { return t.count(at, &n) })
	if err == nil {
		r.iscsi.Connections = n
	}
	return err
}
