package failing

import "testing"

func TestPositive(t *testing.T) {
	if positive(1) {
		t.Fatal("needs a program that is not installed")
	}
}
