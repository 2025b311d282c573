package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spdkgate/spdkgate/proxy/config"
)

// An Instance is the name of one of several services on a host: NAME in spdk-proxy@NAME.service.
// The empty name stands for spdk-proxy.service. Each instance has its own target, configuration and
// directories.
type Instance string

var instanceNames = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)

// ParseInstance checks a name given by a user, because the name becomes part of paths.
func ParseInstance(name string) (Instance, error) {
	if name != "" && !instanceNames.MatchString(name) {
		return "", errors.New("an instance is NAME in spdk-proxy@NAME.service: 1 to 64 letters, digits and _.-, of which the first is a letter, digit or _")
	}
	return Instance(name), nil
}

const (
	program      = "spdk-proxy"
	configFolder = "/etc/spdk-proxy"
)

// InstanceOf returns the instance whose service reads a configuration file, or false if there is
// none.
func InstanceOf(file string) (Instance, bool) {
	dir, name := filepath.Split(filepath.Clean(file))
	name, ok := strings.CutSuffix(name, ".yaml")
	if !ok || filepath.Clean(dir) != configFolder {
		return "", false
	}
	if name == program {
		return "", true
	}
	i, err := ParseInstance(name)
	return i, err == nil
}

// unit returns the name of the instance's unit, without its type.
func (i Instance) unit() string {
	if i == "" {
		return program
	}
	return program + "@" + string(i)
}

func (i Instance) socketUnit() string { return i.unit() + ".socket" }

// Config returns the path of the instance's configuration file.
func (i Instance) Config() string {
	if i == "" {
		i = program
	}
	return filepath.Join(configFolder, string(i)+".yaml")
}

// StateDirectory returns the directory for the instance's persistent state.
func (i Instance) StateDirectory() string { return "/var/lib/" + i.unit() }

func (i Instance) runtimeDirectory() string { return "/run/" + i.unit() }

// ownInstance returns this process's instance, which it derives from the directory that systemd has
// created for the service.
func ownInstance() Instance {
	_, name, _ := strings.Cut(filepath.Base(os.Getenv(runtimeVariable)), "@")
	return Instance(name)
}

// checkOwnInstance calls CheckInstance for this process's instance, provided that systemd started
// this process.
func checkOwnInstance(c *config.Config) error {
	if filepath.Dir(os.Getenv(runtimeVariable)) != "/run" {
		return nil
	}
	return CheckInstance(c, ownInstance())
}

const keysSocket = "spdk-proxy-keys"

// InstanceOfKeys returns the instance to which a socket for key files belongs:
// /run/spdk-proxy-keys.sock belongs to spdk-proxy.service, and /run/spdk-proxy-keys@NAME.sock to
// instance NAME. For other paths, it returns false.
func InstanceOfKeys(socket string) (Instance, bool) {
	base := filepath.Base(socket)
	if base == keysSocket+".sock" {
		return "", true
	}
	name, prefix := strings.CutPrefix(base, keysSocket+"@")
	name, suffix := strings.CutSuffix(name, ".sock")
	if !prefix || !suffix || name == "" {
		return "", false
	}
	i, err := ParseInstance(name)
	return i, err == nil
}

// CheckInstance rejects a configuration that uses another instance's directory or socket. With such
// a configuration, two proxies would overwrite each other's files and delete each other's keys.
func CheckInstance(c *config.Config, i Instance) error {
	var wrong []error
	for key, path := range map[string]string{"target.save.dir": c.Target.Save.Dir, "target.freeze.dir": c.Target.Freeze.Dir, "tls.self_signed_dir": c.TLS.SelfSignedDir, "log.calls.path": c.Log.Calls.Path} {
		if other, ok := OwnerOf(path); ok && other != i {
			wrong = append(wrong, fmt.Errorf("%s: %s belongs to %s.service: use a directory with the name %s", key, path, other.unit(), i.unit()))
		}
	}
	if other, ok := InstanceOfKeys(c.Target.Keys.Socket); ok && other != i {
		wrong = append(wrong, fmt.Errorf("target.keys.socket: %s belongs to %s.service: use /run/%s.sock", c.Target.Keys.Socket, other.unit(), strings.Replace(i.unit(), program, keysSocket, 1)))
	}
	return errors.Join(wrong...)
}

// OwnerOf returns the instance whose state or log directory contains a path.
func OwnerOf(path string) (Instance, bool) {
	rest, ok := strings.CutPrefix(filepath.Clean(path), "/var/lib/"+program)
	if !ok {
		rest, ok = strings.CutPrefix(filepath.Clean(path), "/var/log/"+program)
	}
	if !ok {
		return "", false
	}
	name, _, _ := strings.Cut(rest, "/")
	if name == "" {
		return "", true
	}
	if name, ok = strings.CutPrefix(name, "@"); !ok {
		return "", false
	}
	i, err := ParseInstance(name)
	return i, err == nil
}
