package policy

import (
	"strconv"
	"strings"
)

// A number is an integer in the range of int64 or uint64.
type number struct {
	negative  bool
	magnitude uint64
}

// parseNumber parses an integer written in plain digits. It rejects JSON's other notations, such as
// 1e3.
func parseNumber(text string) (number, bool) {
	digits, negative := strings.CutPrefix(text, "-")
	magnitude, err := strconv.ParseUint(digits, 10, 64)
	return number{negative && magnitude != 0, magnitude}, err == nil
}

func (n number) less(o number) bool {
	if n.negative != o.negative {
		return n.negative
	}
	return n.magnitude != o.magnitude && (n.magnitude < o.magnitude) != n.negative
}

// An interval includes its bounds. A nil bound means unbounded.
type interval struct{ low, high *number }

func (i interval) contains(n number) bool {
	return (i.low == nil || !n.less(*i.low)) && (i.high == nil || !i.high.less(n))
}

// newInterval returns the interval between two integers. Nil means unbounded.
func newInterval(low, high *Integer) (i interval) {
	if low != nil {
		i.low = new(low.number())
	}
	if high != nil {
		i.high = new(high.number())
	}
	return i
}
