package connect

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// NVMeOptions are the kernel's settings for an NVMe over Fabrics controller. A zero field means
// that field's documented default. The options apply only to controllers that are created later.
type NVMeOptions struct {
	// CtrlLossTimeout limits how long the kernel tries to reconnect to a lost target before it
	// fails all I/O and removes the device; the default is 10 minutes. If it is negative, there is
	// no limit.
	CtrlLossTimeout time.Duration
	// ReconnectDelay is the pause between attempts to reconnect to a lost target; the default is 2
	// s.
	ReconnectDelay time.Duration
	// KeepAlive is the time after which the kernel considers an unresponsive target lost; the
	// default is 5 s.
	KeepAlive time.Duration
	// FastIOFail limits how long I/O waits for a lost target before it fails, even if the kernel is
	// still trying to reconnect; the default is unlimited.
	FastIOFail time.Duration
	// IOQueues limits the number of I/O queues; the default is one for each CPU.
	IOQueues int
	// QueueSize is the depth of each I/O queue, 16 to 1024; the default is the kernel's (128).
	QueueSize int
}

func (o NVMeOptions) withDefaults() NVMeOptions {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&o.CtrlLossTimeout, 10*time.Minute)
	set(&o.ReconnectDelay, 2*time.Second)
	set(&o.KeepAlive, 5*time.Second)
	return o
}

func (o NVMeOptions) validate() error {
	for _, d := range []struct {
		name     string
		value    time.Duration
		negative bool
	}{
		{"CtrlLossTimeout", o.CtrlLossTimeout, true},
		{"ReconnectDelay", o.ReconnectDelay, false},
		{"KeepAlive", o.KeepAlive, false},
		{"FastIOFail", o.FastIOFail, false},
	} {
		if d.value%time.Second != 0 || d.value < 0 && !d.negative {
			return fmt.Errorf("NVMe option %s is %v: it must be a whole number of seconds, and not negative", d.name, d.value)
		}
	}
	if o.IOQueues < 0 {
		return fmt.Errorf("NVMe option IOQueues is %d: it must not be negative", o.IOQueues)
	}
	if o.QueueSize != 0 && (o.QueueSize < 16 || o.QueueSize > 1024) {
		return fmt.Errorf("NVMe option QueueSize is %d: use 16 to 1024", o.QueueSize)
	}
	full := o.withDefaults()
	if full.CtrlLossTimeout > 0 && full.ReconnectDelay > full.CtrlLossTimeout {
		return fmt.Errorf("NVMe option ReconnectDelay (%v) is longer than CtrlLossTimeout (%v): the kernel would never reconnect",
			full.ReconnectDelay, full.CtrlLossTimeout)
	}
	return nil
}

// OptionKeys lists the context map's keys for options of the kernel's NVMe controllers. The keys
// are the kernel's names for these options. Values are in the kernel's units; digests are true or
// false.
var OptionKeys = []string{"ctrl_loss_tmo", "reconnect_delay", "keep_alive_tmo", "fast_io_fail_tmo", "nr_io_queues", "queue_size", "hdr_digest", "data_digest"}

// parseOptions returns the NVMe options in a context map. It applies the bounds of the class
// parameters with the same names.
func parseOptions(m map[string]string) (map[string]string, error) {
	var options map[string]string
	for _, key := range OptionKeys {
		value, ok := m[key]
		if !ok {
			continue
		}
		if want, valid := validOption(key, value); !valid {
			return nil, invalid(key, value, want)
		}
		if options == nil {
			options = map[string]string{}
		}
		options[key] = value
	}
	return options, nil
}

func validOption(key, value string) (want string, valid bool) {
	bounds := map[string]struct {
		least, most int
		unlimited   bool
	}{
		"ctrl_loss_tmo": {1, 86400, true}, "fast_io_fail_tmo": {1, 86400, true},
		"reconnect_delay": {1, 3600, false}, "keep_alive_tmo": {1, 3600, false},
		"nr_io_queues": {1, 1024, false}, "queue_size": {16, 1024, false},
	}
	b, number := bounds[key]
	if !number {
		return "true or false", value == "true" || value == "false"
	}
	n, err := strconv.Atoi(value)
	return fmt.Sprintf("%d to %d, or -1 if the option can be unlimited", b.least, b.most),
		err == nil && strconv.Itoa(n) == value && (n >= b.least && n <= b.most || n == -1 && b.unlimited)
}

// fabricsOptions returns the string that creates a controller when written to /dev/nvme-fabrics.
func fabricsOptions(e Export, address string, h Host, o NVMeOptions) string {
	opts := []string{
		"transport=" + string(e.Transport),
		"traddr=" + address,
		"trsvcid=" + e.Port,
		"nqn=" + e.NQN,
		"hostnqn=" + h.NQN,
		"hostid=" + h.UUID,
	}
	values := o.withDefaults().values()
	maps.Copy(values, e.Options)
	for _, key := range OptionKeys {
		switch value := values[key]; {
		case key == "hdr_digest" || key == "data_digest":
			// The kernel rejects digests for all other transports, because these have their own
			// checksums.
			if value == "true" && e.Transport == TCP {
				opts = append(opts, key)
			}
		case key == "fast_io_fail_tmo" && value == "-1": // this is the kernel's default, but the kernel does not accept it as a value
		case value != "":
			opts = append(opts, key+"="+value)
		}
	}
	return strings.Join(opts, ",")
}

// values returns the options, keyed by the kernel's names.
func (o NVMeOptions) values() map[string]string {
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
	m := map[string]string{"ctrl_loss_tmo": "-1", "reconnect_delay": seconds(o.ReconnectDelay), "keep_alive_tmo": seconds(o.KeepAlive)}
	if o.CtrlLossTimeout > 0 {
		m["ctrl_loss_tmo"] = seconds(o.CtrlLossTimeout)
	}
	if o.FastIOFail > 0 {
		m["fast_io_fail_tmo"] = seconds(o.FastIOFail)
	}
	if o.IOQueues > 0 {
		m["nr_io_queues"] = strconv.Itoa(o.IOQueues)
	}
	if o.QueueSize > 0 {
		m["queue_size"] = strconv.Itoa(o.QueueSize)
	}
	return m
}
