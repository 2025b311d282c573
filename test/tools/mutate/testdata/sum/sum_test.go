package sum

import (
	"os"
	"os/exec"
	"testing"
)

// A child process that is not told where to write its coverage prints a warning.
func TestMain(m *testing.M) {
	if os.Getenv("SUM_CHILD") == "" {
		os.Exit(m.Run())
	}
}

func TestChild(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SUM_CHILD=1")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatal(err, string(out))
	}
}

func TestPositive(t *testing.T) {
	if !Positive(1) || Positive(-1) || untested(1) && untested(2) {
		t.Fatal()
	}
}

func TestForms(t *testing.T) {
	var l list[string]
	var reached bool
	l.add(convert(3, "a"), &reached)
	if l.total("", 1, 2) != 5 || l.all[0] != "aa" || !reached || !unreached(1) || grade(8) != 2 || limit != 3 {
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
