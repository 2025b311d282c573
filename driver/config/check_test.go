package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckConfigIsParsed(t *testing.T) {
	for text, want := range map[string]time.Duration{``: time.Hour, `, "check": {}`: time.Hour, `, "check": {"interval": "5m"}`: 5 * time.Minute, `, "check": {"interval": "0"}`: 0} {
		c, err := Parse([]byte(configWith("", "", text)))
		require.NoError(t, err, text)
		assert.Equal(t, want, c.Check.Every(), text)
	}
	for _, text := range []string{"1", "often", "-1h", "4m59s", "1ns"} {
		_, err := Parse([]byte(configWith("", "", `, "check": {"interval": "`+text+`"}`)))
		require.ErrorContains(t, err, "check: interval is", text)
	}
}
