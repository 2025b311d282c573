package class

import (
	"fmt"
	"strconv"
)

// nvmeOptions are the parameters that say how nodes connect over NVMe/TCP and NVMe/RDMA. They have the names and the units
// of the kernel's options. A parameter that is missing leaves the decision to the node's flags.
var nvmeOptions = map[string]parameter{
	"ctrl_loss_tmo":    seconds("ctrl_loss_tmo", 86400, "-1"),
	"reconnect_delay":  seconds("reconnect_delay", 3600, ""),
	"keep_alive_tmo":   seconds("keep_alive_tmo", 3600, ""),
	"fast_io_fail_tmo": seconds("fast_io_fail_tmo", 86400, "-1"),
	"nr_io_queues":     number("nr_io_queues", "", 1, 1024, ""),
	"queue_size":       number("queue_size", "", 16, 1024, ""),
	"hdr_digest":       digest("hdr_digest"),
	"data_digest":      digest("data_digest"),
}

func seconds(key string, most int, unlimited string) parameter {
	return number(key, "seconds, ", 1, most, unlimited)
}

// number returns a parameter with a whole number, or the value that means unlimited.
func number(key, unit string, least, most int, unlimited string) parameter {
	values := fmt.Sprintf("%s%d to %d", unit, least, most)
	if unlimited != "" {
		values += ", or " + unlimited + " for unlimited"
	}
	return parameter{values, func(c *Class, v string) bool {
		n, err := strconv.Atoi(v)
		c.setNVMe(key, v)
		return v == unlimited && v != "" || err == nil && n >= least && n <= most && strconv.Itoa(n) == v
	}}
}

func digest(key string) parameter {
	return parameter{"true or false", func(c *Class, v string) bool {
		c.setNVMe(key, v)
		return v == "true" || v == "false"
	}}
}

func (c *Class) setNVMe(key, value string) {
	if c.NVMe == nil {
		c.NVMe = map[string]string{}
	}
	c.NVMe[key] = value
}

// checkNVMe refuses times that contradict each other.
func (c *Class) checkNVMe() error {
	loss, err := strconv.Atoi(c.NVMe["ctrl_loss_tmo"])
	if err != nil || loss < 0 {
		return nil
	}
	for _, key := range []string{"reconnect_delay", "fast_io_fail_tmo"} {
		if n, err := strconv.Atoi(c.NVMe[key]); err == nil && n > loss {
			return fmt.Errorf("%w: %s is %d s, longer than ctrl_loss_tmo (%d s), after which the kernel removes the device: use a shorter time", ErrParameter, key, n, loss)
		}
	}
	return nil
}
