package execute

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/logtest"
	"github.com/spdkgate/spdkgate/rpcschema"
)

func TestServerDoesNotStartIfADirectoryIsMissing(t *testing.T) {
	for name, set := range map[string]func(c *config.Config, dir string){
		"target.save.dir":   func(c *config.Config, dir string) { c.Target.Save.Dir = dir },
		"target.keys.dir":   func(c *config.Config, dir string) { c.Target.Keys.Dir = dir },
		"target.freeze.dir": func(c *config.Config, dir string) { c.Target.Freeze.Dir = dir },
	} {
		inTheWay := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(inTheWay, nil, 0o600))
		c := config.Default()
		set(&c, inTheWay)
		log := &logtest.Log{}
		e, err := New(Options{Config: &c, Schema: rpcschema.Default(), Log: config.NewLogger(log, config.Log{Format: "json"})})
		require.Error(t, err, name)
		assert.Nil(t, e, name)
	}
}
