package schema

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// unanswered lists read-only methods that the tests' target refuses, each with the reason.
var unanswered = map[string]string{
	"bdev_ftl_get_stats":                "no FTL bdev is created: it would need gigabytes",
	"bdev_ftl_get_properties":           "no FTL bdev is created: it would need gigabytes",
	"bdev_nvme_get_mdns_discovery_info": "built without Avahi",
	"bdev_opal_get_info":                "there is no Opal device",
}

// untouchable lists methods that are not called with broken parameters.
var untouchable = map[string]string{
	"spdk_kill_instance": "it would end the target",
	"fsdev_aio_create":   "the target crashes if xattr is enabled and the file system does not support it",
}

// states lists methods that can be called in states other than those that the schema lists.
var states = map[string]exception{
	"framework_get_scheduler": {why: "in the runtime state only", until: "v24.05"},
}

// specialQueries contains parameters for read-only methods whose generated parameters do not name
// existing objects.
var specialQueries = map[string][]map[string]any{
	"sock_impl_get_options":                {{"impl_name": "posix"}, {"impl_name": "ssl"}},
	"bdev_nvme_get_controller_health_info": {{"name": "nvme0"}},
	"bdev_nvme_get_controllers":            {{}, {"name": "nvme0"}},
	"bdev_nvme_get_io_paths":               {{}, {"name": "nvme0n1"}},
	"bdev_nvme_get_path_iostat":            {{"name": "nvme0n1"}},
	"bdev_raid_get_bdevs":                  {{"category": "all"}, {"category": "online"}, {"category": "configuring"}, {"category": "offline"}},
	"bdev_get_bdevs":                       {{}, {"name": "malloc0", "timeout": json.Number("1000")}, {"name": "lvs0/vol1"}},
	"nvmf_get_transports":                  {{}, {"trtype": "TCP"}},
	"notify_get_notifications":             {{}, {"id": json.Number("1"), "max": json.Number("2")}},
	"framework_get_config":                 configs("accel", "bdev", "fsdev", "iobuf", "iscsi", "keyring", "nbd", "nvmf", "scheduler", "scsi", "sock", "ublk", "vhost_blk", "vhost_scsi", "vmd"),
}

func configs(subsystems ...string) (list []map[string]any) {
	for _, name := range subsystems {
		list = append(list, map[string]any{"name": name})
	}
	return list
}

// safe reports whether a method may be called with valid parameters that do not name existing
// objects.
func safe(m *rpcschema.Method) bool { return !slices.Contains(unsafe, m.Name) }

// bdev_ftl_create would wait for bdevs that do not exist, and use bdevs that appear later.
// framework_start_init would end the state under test.
var unsafe = []string{"bdev_ftl_create", "framework_start_init"}

// nowhere contains names of objects that do not exist.
var nowhere = map[string]string{
	"bdev": "no-such-bdev", "new-bdev": "new-bdev", "lvstore": "no-such-store", "new-lvstore": "new-store", "lvol-name": "no-such-volume",
	"lvstore-uuid": "00000000-0000-4000-8000-000000000000", "nqn": "nqn.2016-06.io.spdk:nowhere", "host-nqn": "nqn.2016-06.io.spdk:nobody",
	"iqn": "iqn.2016-06.io.spdk:nowhere", "initiator": "iqn.2016-06.io.spdk:nobody", "address": "192.0.2.1", "file": "/nowhere/file",
	"key": "no-such-key", "crypto-key": "no-such-crypto-key",
}

// An exception is a broken call that SPDK nevertheless accepts.
type exception struct {
	why          string
	since, until string // releases that it applies to; "": all
	unsent       bool   // the call would have an effect, so the tests do not send it
}

// accepted contains the exceptions. The keys have the form "method what pointer"; a star matches
// anything.
var accepted = map[string]exception{
	"accel_get_stats unknown /no_such_parameter":                           {why: ignores},
	"accel_set_options too-small /task_count":                              {why: "SPDK lets a sequence run out of tasks", until: "v24.05"},
	"bdev_delay_create too-short /name":                                    {why: later},
	"bdev_ftl_create * /l2p_dram_limit":                                    {why: later, unsent: true},
	"bdev_ftl_create * /overprovisioning":                                  {why: later, unsent: true},
	"bdev_lvol_create too-large /size_in_mib":                              {why: "SPDK multiplies by 1 MiB in 64 bits, and creates a volume of the remaining size", unsent: true},
	"bdev_lvol_resize too-large /size_in_mib":                              {why: "SPDK multiplies by 1 MiB in 64 bits, and resizes to the remaining size", unsent: true},
	"bdev_lvol_rename_lvstore too-long /new_name":                          {why: "v26.05 renames the lvstore to 64 characters", unsent: true},
	"bdev_lvol_rename too-long /new_name":                                  {why: "v24.01 and v26.05 answered 64 characters with success, and the volume could not be found by its old name", unsent: true},
	"nvmf_create_transport too-large /max_io_qpairs_per_ctrlr":             {why: "SPDK adds the admin queue in 16 bits, and then allows no queue at all", unsent: true},
	"bdev_null_create multiple /physical_block_size":                       {why: "the target crashes: it refuses, and then creates the bdev and answers again", until: "v24.05", unsent: true},
	"bdev_nvme_attach_controller too-long /hostnqn":                        {why: "SPDK truncates it, and connects with another NQN", until: "v24.01", unsent: true},
	"bdev_nvme_attach_controller too-long /name":                           {why: unchecked, until: "v24.01", unsent: true},
	"bdev_nvme_attach_controller too-short /name":                          {why: unchecked, until: "v24.01", unsent: true},
	"bdev_nvme_get_discovery_info unknown /no_such_parameter":              {why: ignores},
	"bdev_passthru_create too-short /name":                                 {why: later},
	"bdev_raid_create too-short /base_bdevs/0":                             {why: "SPDK waits for a bdev without a name", until: "v24.05", unsent: true},
	"bdev_raid_create too-short /name":                                     {why: "SPDK creates an array without a name", until: "v24.05", unsent: true},
	"bdev_split_create too-large /split_size_mb":                           {why: "SPDK multiplies by 1 MiB in 64 bits, divides by the rest, and crashes if that is 0", unsent: true},
	"blobfs_set_cache_size too-large /size_in_mb":                          {why: "SPDK multiplies by 1 MiB in 64 bits, and uses the rest"},
	"framework_set_scheduler * /core_busy":                                 {why: other, unsent: true},
	"framework_set_scheduler * /core_limit":                                {why: other, unsent: true},
	"framework_set_scheduler * /load_limit":                                {why: other, unsent: true},
	"framework_set_scheduler release *":                                    {why: other, unsent: true},
	"framework_set_scheduler unknown /no_such_parameter":                   {why: other, unsent: true},
	"framework_wait_init unknown /no_such_parameter":                       {why: ignores},
	"iobuf_get_stats unknown /no_such_parameter":                           {why: ignores},
	"iobuf_set_options too-small /large_bufsize":                           {why: "SPDK raises it silently", until: "v24.01"},
	"iobuf_set_options too-small /small_bufsize":                           {why: "SPDK raises it silently", until: "v24.01"},
	"iscsi_create_portal_group too-long /portals/0/host":                   {why: givenUp, unsent: true},
	"iscsi_set_options too-small *":                                        {why: atStart, unsent: true},
	"iscsi_set_options too-large *":                                        {why: atStart, unsent: true},
	"iscsi_create_portal_group too-long /portals/0/port":                   {why: givenUp, unsent: true},
	"keyring_get_keys unknown /no_such_parameter":                          {why: ignores},
	"nvmf_create_target release /discovery_filter":                         {why: "any value except none makes the target crash", until: "v25.09", unsent: true},
	"nvmf_create_transport * /acceptor_backlog":                            {why: foreign, unsent: true},
	"nvmf_create_transport * /disable_adaptive_irq":                        {why: foreign, unsent: true},
	"nvmf_create_transport * /disable_compare":                             {why: foreign, unsent: true},
	"nvmf_create_transport * /disable_mappable_bar0":                       {why: foreign, unsent: true},
	"nvmf_create_transport * /disable_shadow_doorbells":                    {why: foreign, unsent: true},
	"nvmf_create_transport * /enable_intr_mode_sq_spreading":               {why: foreign, unsent: true},
	"nvmf_create_transport * /max_srq_depth":                               {why: foreign, unsent: true},
	"nvmf_create_transport * /no_srq":                                      {why: foreign, unsent: true},
	"nvmf_create_transport * /no_wr_batching":                              {why: foreign, unsent: true},
	"nvmf_create_transport * /num_cqe":                                     {why: foreign, unsent: true},
	"nvmf_discovery_add_referral missing /address/trtype":                  {why: noLength, until: "v24.01", unsent: true},
	"nvmf_discovery_add_referral too-short /address/trtype":                {why: nameless},
	"nvmf_discovery_add_referral unknown /no_such_parameter":               {why: relaxed},
	"nvmf_discovery_remove_referral missing /address/trtype":               {why: noLength, until: "v24.01", unsent: true},
	"nvmf_discovery_remove_referral too-short /address/trtype":             {why: nameless},
	"nvmf_set_max_subsystems missing /max_subsystems":                      {why: "SPDK uses its default if there are no parameters", unsent: true},
	"nvmf_subsystem_add_listener * /numa_id":                               {why: foreign, unsent: true},
	"nvmf_subsystem_add_listener missing /listen_address/trtype":           {why: noLength, until: "v24.01", unsent: true},
	"nvmf_subsystem_listener_set_ana_state missing /listen_address/trtype": {why: noLength, until: "v24.01", unsent: true},
	"nvmf_subsystem_remove_listener missing /listen_address/trtype":        {why: noLength, until: "v24.01", unsent: true},
	"trace_clear_tpoint_mask missing /tpoint_mask":                         {why: "no tracepoint is cleared", until: "v26.01", unsent: true},
	"trace_set_tpoint_mask missing /tpoint_mask":                           {why: "no tracepoint is set", until: "v26.01", unsent: true},
	"vmd_enable unknown /no_such_parameter":                                {why: ignores},
}

const (
	relaxed   = "SPDK ignores members that it does not know, because they may belong to a transport or a key: a typing error would not be noticed"
	foreign   = "SPDK's TCP transport ignores the options of other transports"
	other     = "SPDK's schedulers ignore the options of other schedulers"
	noLength  = "the target crashes: it reads the length of a missing transport name"
	givenUp   = "the target crashes while it deletes the group after the error"
	atStart   = "SPDK checks ranges when it starts, and then does not start"
	nameless  = "SPDK refers to a transport without a name"
	unchecked = "bdev_nvme_create attaches a controller of any name; here that is the target itself, which the calls that detach nvme0 then leave attached, and the next change of a namespace blocks it permanently"
	ignores   = "SPDK ignores the parameters of a method that has none"
	later     = "SPDK checks it when the base bdev appears, and then drops the new bdev without an error"
)

// The schema contains the list of the decoders that ignore unknown members.
func init() {
	for _, m := range rpcschema.Default().OfSPDK() {
		if m.Relaxed == nil {
			continue
		}
		for _, broken := range []string{" release *", " unknown /no_such_parameter"} {
			if _, listed := accepted[m.Name+broken]; !listed {
				accepted[m.Name+broken] = exception{why: relaxed, since: m.Relaxed.Since.String(), until: lastOf(m.Relaxed), unsent: true}
			}
		}
	}
}

func lastOf(r *rpcschema.Relaxed) string {
	if !r.Until.Known() {
		return ""
	}
	return r.Until.String()
}

func newTally() *tally {
	t := &tally{seen: map[string]bool{}, proven: map[string]bool{}, unused: map[string]bool{}}
	for key := range accepted {
		t.unused[key] = true
	}
	return t
}

// exceptionFor returns the exception that matches a broken call, or "".
func exceptionFor(id string, r rpcschema.Release) string {
	call := strings.Fields(id)
	for key, e := range accepted {
		if e.in(r) && slices.EqualFunc(strings.Fields(key), call, func(pattern, s string) bool { return pattern == "*" || pattern == s }) {
			return key
		}
	}
	return ""
}

func (e exception) in(r rpcschema.Release) bool {
	var w rpcschema.Window
	if e.since != "" {
		w.Since = rpcschema.MustRelease(e.since)
	}
	if e.until != "" {
		w.Until = rpcschema.MustRelease(e.until)
	}
	return w.Has(r)
}

// stale reports whether a listed exception was not needed.
func (b *bench) stale(key string) bool {
	e := accepted[key]
	return !e.unsent && e.in(b.release) && slices.Contains(b.current, strings.Fields(key)[0])
}
