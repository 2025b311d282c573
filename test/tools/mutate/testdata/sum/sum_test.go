package sum

import "testing"

func TestPositive(t *testing.T) {
	if !Positive(1) || Positive(-1) || untested(1) && untested(2) {
		t.Fatal()
	}
}

func TestLong(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	if !untested(7) {
		t.Fatal()
	}
}
