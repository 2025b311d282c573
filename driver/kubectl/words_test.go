package kubectl

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSizesAreFormatted(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1Ki", 1536: "1.5Ki", 1 << 20: "1Mi", 1<<30 - 1: "1024Mi", 1 << 40: "1Ti", 1 << 60: "1024Pi"} {
		assert.Equal(t, want, size(bytes))
	}
	for want, words := range map[string][]string{"": nil, "a": {"a"}, "a,b": {"a", "b"}, "a(2),b": {"a", "a", "b"}, "a,b(3)": {"a", "b", "b", "b"}} {
		assert.Equal(t, want, counted(words))
	}
	now := time.Unix(1e9, 0)
	assert.Empty(t, age(now, nil))
	for d, want := range map[time.Duration]string{
		0: "0s", 2*time.Minute - 1: "119s", 2 * time.Minute: "2m", 2*time.Hour - 1: "119m", 2 * time.Hour: "2h", 48*time.Hour - 1: "47h",
		48 * time.Hour: "2d", 72*time.Hour - 1: "2d", 72 * time.Hour: "3d", 24 * 100 * time.Hour: "100d",
	} {
		at := now.Add(-d)
		assert.Equal(t, want, age(now, &at), d)
	}
}
