package importer

import (
	"testing"

	"github.com/spdkgate/spdkgate/test/tools/mutate/testdata/sum"
)

func TestZero(t *testing.T) {
	if sum.Positive(0) {
		t.Fatal("0 is positive")
	}
}
