package target

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOneUserCannotOccupyAllSlots(t *testing.T) {
	s := NewSlots(Limits{Total: 64, PerUser: 64}, time.Millisecond)
	n := 0
	var err error
	for ; err == nil; n++ {
		_, err = s.Acquire(t.Context(), "a")
	}
	assert.Equal(t, 32, n-1, "as many slots as remain free")
	var busy *BusyError
	require.True(t, errors.As(err, &busy) && busy.User)
	release, err := s.Acquire(t.Context(), "b")
	require.NoError(t, err)
	release()
}
