package config

import (
	"errors"
	"path/filepath"
)

// Save configures where the target's configuration is saved. Without a directory, it is not saved.
type Save struct {
	Dir  string `yaml:"dir" empty:"no"`
	Keep int    `yaml:"keep"`
	// DisableAutoExamine is passed to package persist (see persist.Options).
	DisableAutoExamine bool `yaml:"disable_auto_examine"`
}

// Keys configures where key files are stored: in a directory, if this process runs as spdk_tgt's
// user, or by another process behind a socket. If neither is set, keys cannot be added.
type Keys struct {
	Dir    string `yaml:"dir" empty:"no"`
	Socket string `yaml:"socket" empty:"no"`
}

func (c *Config) validateRestart() error {
	var wrong []error
	wrong = append(wrong, between("target.save.keep", c.Target.Save.Keep, 1000))
	k := &c.Target.Keys
	if k.Dir != "" && k.Socket != "" {
		wrong = append(wrong, errors.New("target.keys: set either dir or socket, not both"))
	}
	for _, p := range []*string{&c.Target.Save.Dir, &k.Dir, &k.Socket} {
		if *p != "" {
			var err error
			*p, err = c.path(*p)
			wrong = append(wrong, err)
		}
	}
	if k.Dir != "" && filepath.Clean(k.Dir) == filepath.Clean(c.Target.Save.Dir) {
		wrong = append(wrong, errors.New("target.keys.dir and target.save.dir must be different directories"))
	}
	return errors.Join(wrong...)
}
