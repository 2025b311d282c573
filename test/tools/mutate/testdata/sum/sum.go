// Package sum is changed by the test of mutate.
package sum

// Positive reports whether n is greater than 0. Its test calls it with 1 and -1 only, so that
// the change of > to >= survives.
func Positive(n int) bool { return n > 0 }

func untested(n int) bool { return n == 7 }
