package policy

import (
	"strconv"
	"strings"
)

// A number is any of int64's and uint64's, exactly.
type number struct {
	negative  bool
	magnitude uint64
}

// parseNumber reads a whole number in plain digits. JSON has other spellings,
// such as 1e3, which nothing is decided on.
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

// An interval is closed; a bound that is missing is none.
type interval struct{ low, high *number }

func (i interval) contains(n number) bool {
	return (i.low == nil || !n.less(*i.low)) && (i.high == nil || !i.high.less(n))
}

// newInterval is that of two numbers, nil for no bound.
func newInterval(low, high *Integer) (i interval) {
	if low != nil {
		i.low = new(low.number())
	}
	if high != nil {
		i.high = new(high.number())
	}
	return i
}
