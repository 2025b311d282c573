package execute

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/proxy/persist"
)

func TestEverythingSavedRequiresCompleteStatus(t *testing.T) {
	now := time.Now()
	assert.True(t, everythingSaved(persist.Status{SavedAt: now}))
	for name, s := range map[string]persist.Status{
		"nothing was saved": {}, "unsaved changes": {SavedAt: now, Pending: true}, "saving failed": {SavedAt: now, Failed: true},
		"the target lacks a call": {SavedAt: now, Missing: make([]persist.Call, 1)}, "another file was chosen": {SavedAt: now, Chosen: now},
	} {
		assert.False(t, everythingSaved(s), name)
	}
}
