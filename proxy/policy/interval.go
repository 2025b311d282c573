package policy

import (
	"math"
	"math/big"
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
type interval struct {
	low, high *number
	empty     bool
}

func (i interval) contains(n number) bool {
	return !i.empty && (i.low == nil || !n.less(*i.low)) && (i.high == nil || !i.high.less(n))
}

// A span is an interval while rules are compiled.
type span struct{ low, high *big.Int } // nil: none

var one = big.NewInt(1)

// asForerunner is the span of old = new × factor for a span of the new parameter.
// SPDK and the proxy's translation round what is between two of new's values up.
// For a deny, values that come to the same thing by that are in it.
func (s span) asForerunner(factor *big.Int, deny bool) (old span) {
	if s.low != nil {
		old.low = new(big.Int).Mul(s.low, factor)
		if deny {
			old.low.Sub(old.low, factor).Add(old.low, one)
		}
	}
	if s.high != nil {
		old.high = new(big.Int).Mul(s.high, factor)
	}
	return old
}

// asSuccessor is the span of the new parameter for a span of old = new × factor.
func (s span) asSuccessor(factor *big.Int, deny bool) (successor span) {
	if s.low != nil {
		successor.low = quotientUp(s.low, factor)
	}
	switch {
	case s.high == nil:
	case deny:
		successor.high = quotientUp(s.high, factor)
	default:
		successor.high = new(big.Int).Div(s.high, factor) // Euclidean: downwards
	}
	return successor
}

func quotientUp(n, factor *big.Int) *big.Int {
	up := new(big.Int).Add(n, factor)
	return up.Sub(up, one).Div(up, factor)
}

// compiled is the span among the numbers that there are.
func (s span) compiled() (i interval) {
	most := new(big.Int).SetUint64(math.MaxUint64)
	least := big.NewInt(math.MinInt64)
	bound := func(n *big.Int) *number {
		return &number{n.Sign() < 0, new(big.Int).Abs(n).Uint64()}
	}
	if s.low != nil && s.low.Cmp(least) > 0 {
		if s.low.Cmp(most) > 0 {
			return interval{empty: true}
		}
		i.low = bound(s.low)
	}
	if s.high != nil && s.high.Cmp(most) < 0 {
		if s.high.Cmp(least) < 0 {
			return interval{empty: true}
		}
		i.high = bound(s.high)
	}
	return i
}
