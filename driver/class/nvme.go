package class

import (
	"fmt"
	"strconv"
)

// The NVMe parameters control how nodes connect over NVMe/TCP and NVMe/RDMA. They have the same
// names and units as the kernel's options. If a parameter is missing, the node's flags determine
// the option.

// seconds completes a parameter whose value is a number of seconds, or the value that means
// unlimited.
func seconds(p Parameter, most int, unlimited string) Parameter {
	return number(p, "seconds, ", 1, most, unlimited)
}

// number completes a parameter whose value is a whole number, or the value that means unlimited.
func number(p Parameter, unit string, least, most int, unlimited string) Parameter {
	p.Values = fmt.Sprintf("%s%d to %d", unit, least, most)
	if unlimited != "" {
		p.Values += ", or " + unlimited + " for unlimited"
	}
	p.set = func(c *Class, v string) bool {
		n, err := strconv.Atoi(v)
		c.setNVMe(p.Name, v)
		return v == unlimited && v != "" || err == nil && n >= least && n <= most && strconv.Itoa(n) == v
	}
	return p
}

// digest completes a parameter that turns checksums on or off.
func digest(p Parameter) Parameter {
	p.Values = "true or false"
	p.set = func(c *Class, v string) bool {
		c.setNVMe(p.Name, v)
		return v == "true" || v == "false"
	}
	return p
}

func (c *Class) setNVMe(key, value string) {
	if c.NVMe == nil {
		c.NVMe = map[string]string{}
	}
	c.NVMe[key] = value
}

// checkNVMe rejects contradictory timeouts.
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
