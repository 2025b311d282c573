package controller

import (
	"maps"
	"strconv"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// exportContext returns the entries of a volume context that nodes need to reach the volume. The
// keys are the same as in SPDK's spdk-csi.
func exportContext(c config.Target, v volume.Volume) map[string]string {
	first := c.AllAddresses()[0]
	m := map[string]string{
		connect.KeyTargetAddr: first.TargetAddr,
		connect.KeyTargetPort: first.TargetPort,
		connect.KeyNSUUID:     v.UUID,
		connect.KeyLvolSize:   strconv.FormatInt(v.SizeBytes, 10),
	}
	switch c.TargetType {
	case config.TargetISCSI:
		m[connect.KeyTargetType] = config.TargetISCSI
		m[connect.KeyIQN] = export.IQN(v.UUID)
		return m
	case config.TargetLoop:
		m[connect.KeyTargetType] = config.TargetLoop
		m[connect.KeyLoopDir] = c.LoopDir
	default:
		m[connect.KeyTargetType] = string(c.Transport())
	}
	m[connect.KeyNQN] = export.NQN(v.UUID)
	m[connect.KeyModel] = v.UUID
	return m
}

// volumeContext returns the context that Kubernetes stores in the PV of a new volume.
func volumeContext(c config.Target, v volume.Volume, wanted class.Class, from volume.Origin) map[string]string {
	m := exportContext(c, v)
	m[request.KeyStore] = v.Store
	m[request.KeyMayFormat] = strconv.FormatBool(from.UUID == "")
	maps.Copy(m, wanted.ForNodes)
	if c.TargetType != config.TargetISCSI {
		maps.Copy(m, wanted.NVMe)
	}
	return m
}

// withAuthentication adds the node's authentication method to a volume context.
func withAuthentication(m map[string]string, method hostauth.Method, both bool) map[string]string {
	if method != hostauth.None {
		m[hostauth.KeyMethod] = string(method)
	}
	if both {
		m[hostauth.KeyBoth] = "true"
	}
	return m
}

// withClaim adds the volume's PersistentVolumeClaim to a volume context, if the parameters of
// CreateVolume name it.
func withClaim(m, parameters map[string]string) map[string]string {
	for _, key := range []string{request.KeyClaimNamespace, request.KeyClaim} {
		if name := parameters[key]; name != "" {
			m[key] = name
		}
	}
	return m
}

// publishContext returns the context that the node receives: how to reach the volume, and whether
// it may be formatted.
func publishContext(c config.Target, v volume.Exported, mayFormat bool) map[string]string {
	m := exportContext(c, v.Volume)
	m[request.KeyMayFormat] = strconv.FormatBool(mayFormat)
	if v.Multipath {
		m[connect.KeyMultipath] = "true"
	}
	if len(c.Addresses) > 0 {
		m[connect.KeyTargetAddrs] = connect.FormatAddresses(addresses(c))
	}
	return m
}

// addresses returns a target's addresses in the form that nodes receive. The controller has no
// information about the topology of a node, so each node selects the addresses that match its own
// labels.
func addresses(c config.Target) (all []connect.Address) {
	for _, a := range c.AllAddresses() {
		all = append(all, connect.Address{Addr: a.TargetAddr, Port: a.TargetPort, Topology: a.Topology})
	}
	return all
}

// mayFormat reports whether the node may format the volume if it is empty. A pristine volume has no
// data to lose. If the target cannot determine whether the volume is pristine, only the volume
// context matters. PVs created by SPDK's spdk-csi lack the key, so their volumes may always be
// formatted if they are empty. The node always checks that the device is empty before it formats
// it.
func mayFormat(pristine, known bool, volumeContext map[string]string) bool {
	return volumeContext[request.KeyMayFormat] != "false" && (pristine || !known)
}
