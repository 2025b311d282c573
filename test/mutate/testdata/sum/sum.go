// Package sum is changed by the test of mutate.
package sum

// Positive tells whether n is greater than 0. Its test asks for 1 and -1 only, so that
// one change survives: that of > into >=.
func Positive(n int) bool { return n > 0 }

func untested(n int) bool { return n == 7 }
