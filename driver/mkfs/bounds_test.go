package mkfs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Each mkfs option accepts its minimum and maximum, and rejects all values outside that range.
func TestMkfsOptionsOutOfBoundsAreRejected(t *testing.T) {
	for _, c := range []struct {
		fsType, option string
		least, most    int
	}{
		{Ext4, "-E stride=%d", 1, 1 << 20}, {Ext4, "-E stripe_width=%d", 1, 1 << 20}, {Ext4, "-J size=%d", 4, 10240},
		{Ext4, "-i %d", 4096, 64 << 20}, {Ext4, "-m %d", 0, 50},
		{XFS, "-d agcount=%d", 1, 1024}, {XFS, "-d sw=%d", 1, 1024}, {XFS, "-i maxpct=%d", 0, 100},
	} {
		for n, ok := range map[int]bool{c.least - 1: false, c.least: true, c.most: true, c.most + 1: false} {
			options := fmt.Sprintf(c.option, n)
			assert.Equal(t, ok, Check(c.fsType, options) == nil, "%s %s", c.fsType, options)
		}
	}
	for fsType, most := range map[string]int{Ext4: 16, XFS: 12, Btrfs: 255} {
		assert.NoError(t, Check(fsType, "-L "+strings.Repeat("x", most)), fsType)
		assert.ErrorIs(t, Check(fsType, "-L "+strings.Repeat("x", most+1)), ErrOption, fsType)
	}
}
