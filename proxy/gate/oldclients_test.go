package gate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/logtest"
)

// The number of recorded translations is limited, however many users there are.
func TestNumberOfLoggedTranslationsIsLimited(t *testing.T) {
	book := new(logtest.Log)
	o := oldClients{log: config.NewLogger(book, config.Log{Format: "json"})}
	for i := range 3 * maxOldClients {
		assert.True(t, o.isNew(oldClient{user: fmt.Sprint(i)}))
		assert.False(t, o.isNew(oldClient{user: fmt.Sprint(i)}))
		assert.LessOrEqual(t, len(o.logged), maxOldClients)
	}
}
