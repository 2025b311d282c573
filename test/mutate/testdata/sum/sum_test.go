package sum

import "testing"

func TestPositive(t *testing.T) {
	if !Positive(1) || Positive(-1) || untested(1) && untested(2) {
		t.Fatal()
	}
}
