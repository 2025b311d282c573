// Package sum is changed by mutate's test.
package sum

// Positive reports whether n is greater than 0. Its test calls it only with 1 and -1, so that the
// change from > to >= survives.
func Positive(n int) bool { return n > 0 }

func untested(n int) bool { return n == 7 }
