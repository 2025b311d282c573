// Package sum is the package that mutate's tests change.
package sum

const limit = 3

// Positive reports whether n is greater than 0. Its test calls it only with 1 and -1, so the change
// from > to >= survives.
func Positive(n int) bool { return n > 0 }

func untested(n int) bool { return n == 7 }

type list[E any] struct{ all []E }

// The receiver and some parameters have no names.
func (list[E]) total(_ string, numbers ...int) (sum int) {
	for _, n := range numbers {
		sum += n + 1
	}
	return sum
}

func convert[E any](_ E, text string) string { return text + text }

func (l *list[E]) add(e E, reached *bool) {
	l.all = append(l.all, e)
	*reached = true
}

func unreached(n int) bool {
	if n > limit {
		return n < 9
	}
	return true
}

func grade(n int) int {
	switch {
	case n == 9:
		return 1
	}
	return 2
}
