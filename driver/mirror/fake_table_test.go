package mirror

import (
	"fmt"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// checkTable checks a mirror's table when the kernel activates it.
func (w *world) checkTable(before, next target) {
	t, err := parseTable(next)
	require.NoError(w.t, err)
	was, _ := parseTable(before)
	ids := map[string]replica.ID{w.disk(0).dev: 0, w.disk(1).dev: 1}
	first, ok := ids[t.legs[0].number]
	require.True(w.t, ok, "the first leg is not a replica: %s", next.params)
	has := replica.SetOf(first)
	formatted := ""
	if t.log != "" {
		formatted, w.disk(first).formatted = w.disk(first).formatted, ""
		log := w.mapped["spdkmirrorlog-"+testID]
		assert.Equal(w.t, log.number, t.log)
		assert.Equal(w.t, fmt.Sprintf("%s %d", t.legs[0].number, logOffset/sectorBytes), log.active.params, "the log is not on the first leg")
		assert.False(w.t, log.suspended)
	}
	inSync := w.witness.InSync
	if t.keepLog {
		assert.Equal(w.t, w.mapped["spdkmirrorlost-"+testID].number, t.legs[1].number)
		assert.Equal(w.t, "error", w.mapped["spdkmirrorlost-"+testID].active.kind)
		assert.Equal(w.t, has, inSync, "the mirror goes on without a replica that the witness lists")
		noMarks := w.noMarks
		w.noMarks = false
		if was.log != "" || before.kind == "" && w.witness.Logged != 0 && !noMarks {
			assert.Empty(w.t, formatted, "the table discards marks that are needed")
		} else if before.kind != "" {
			assert.Equal(w.t, "clear", formatted)
		}
		return
	}
	second, ok := ids[t.legs[1].number]
	require.True(w.t, ok && second != first, "the second leg is not the other replica: %s", next.params)
	s, _ := w.superblock(second)
	switch {
	case t.log == "":
		assert.Equal(w.t, both, inSync, "the mirror starts with replicas that the witness does not list")
	case was.log != "" && !was.keepLog:
		assert.Empty(w.t, formatted, "a rebuild begins again")
	default:
		assert.Equal(w.t, has, inSync)
		assert.True(w.t, w.witness.Held.Has(second), "the mirror has a replica that is not listed in Held")
		assert.NotEqual(w.t, replica.NoRebuild, s.Rebuild)
		assert.Equal(w.t, s.Rebuild == replica.InFull, formatted == "set")
		assert.True(w.t, formatted == "set" || w.witness.Logged.Has(second), "a replica that the log does not cover is rebuilt by the log")
		w.synced = 0
	}
}
