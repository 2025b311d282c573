package config

import (
	"errors"
	"path/filepath"
)

// Save says where the target's configuration is saved. Without a folder it
// is not.
type Save struct {
	Dir  string `yaml:"dir" empty:"no"`
	Keep int    `yaml:"keep"`
}

// Keys says who keeps the files of keys: this process, in a folder, if it is
// spdk_tgt's user; or another one that is, at a socket. Without either there is
// no placing of keys.
type Keys struct {
	Dir    string `yaml:"dir" empty:"no"`
	Socket string `yaml:"socket" empty:"no"`
}

func (c *Config) validateRestart() error {
	var wrong []error
	wrong = append(wrong, between("target.save.keep", c.Target.Save.Keep, 1000))
	k := &c.Target.Keys
	if k.Dir != "" && k.Socket != "" {
		wrong = append(wrong, errors.New("target.keys: give dir, or the socket of who keeps them, not both"))
	}
	for _, p := range []*string{&c.Target.Save.Dir, &k.Dir, &k.Socket} {
		if *p != "" {
			var err error
			*p, err = c.path(*p)
			wrong = append(wrong, err)
		}
	}
	if k.Dir != "" && filepath.Clean(k.Dir) == filepath.Clean(c.Target.Save.Dir) {
		wrong = append(wrong, errors.New("target.keys.dir and target.save.dir must be two folders"))
	}
	return errors.Join(wrong...)
}
