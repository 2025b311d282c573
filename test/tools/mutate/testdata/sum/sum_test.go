package sum

import "testing"

func TestPositive(t *testing.T) {
	if !Positive(1) || Positive(-1) || untested(1) && untested(2) {
		t.Fatal()
	}
}

func TestForms(t *testing.T) {
	var l list[string]
	var reached bool
	l.add(convert(3, "a"), &reached)
	if l.total("", 1, 2) != 5 || l.all[0] != "aa" || !reached || !unreached(1) || limit != 3 {
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
