package connect

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// NVMeOptions are the kernel's settings for an NVMe over Fabrics controller. Zero means the default,
// which is given for each. They apply to new controllers, not to existing ones.
type NVMeOptions struct {
	// CtrlLossTimeout is how long the kernel retries a lost target before it fails all I/O and
	// removes the device; default 10 minutes. A negative value means forever.
	CtrlLossTimeout time.Duration
	// ReconnectDelay is the pause between such retries; default 2 s.
	ReconnectDelay time.Duration
	// KeepAlive is the time after which a target that does not answer counts as lost; default 5 s.
	KeepAlive time.Duration
	// FastIOFail is how long I/O waits for a lost target before it fails while the kernel still
	// reconnects; default unlimited.
	FastIOFail time.Duration
	// IOQueues limits the number of I/O queues; default one for each CPU.
	IOQueues int
	// QueueSize is the depth of each I/O queue, 16 to 1024; default the kernel's (128).
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
			return fmt.Errorf("NVMe option %s is %v: it must be whole seconds, not negative", d.name, d.value)
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
		return fmt.Errorf("NVMe option ReconnectDelay (%v) is longer than CtrlLossTimeout (%v): the kernel would never try again",
			full.ReconnectDelay, full.CtrlLossTimeout)
	}
	return nil
}

// fabricsOptions returns the text that creates a controller when it is written to /dev/nvme-fabrics.
func fabricsOptions(e Export, address string, h Host, o NVMeOptions) string {
	o = o.withDefaults()
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
	lossTimeout := "-1"
	if o.CtrlLossTimeout > 0 {
		lossTimeout = seconds(o.CtrlLossTimeout)
	}
	opts := []string{
		"transport=" + string(e.Transport),
		"traddr=" + address,
		"trsvcid=" + e.Port,
		"nqn=" + e.NQN,
		"hostnqn=" + h.NQN,
		"hostid=" + h.UUID,
		"ctrl_loss_tmo=" + lossTimeout,
		"reconnect_delay=" + seconds(o.ReconnectDelay),
		"keep_alive_tmo=" + seconds(o.KeepAlive),
	}
	if o.FastIOFail > 0 {
		opts = append(opts, "fast_io_fail_tmo="+seconds(o.FastIOFail))
	}
	if o.IOQueues > 0 {
		opts = append(opts, "nr_io_queues="+strconv.Itoa(o.IOQueues))
	}
	if o.QueueSize > 0 {
		opts = append(opts, "queue_size="+strconv.Itoa(o.QueueSize))
	}
	return strings.Join(opts, ",")
}
