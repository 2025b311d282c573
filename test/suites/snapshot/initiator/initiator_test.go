package initiator

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestStatusErrorContainsTheStatus(t *testing.T) {
	assert.Equal(t, "NVMe status type 0x3, code 0x2, do not retry true", (statusPathInaccessible | statusError(doNotRetry)).Error())
}
