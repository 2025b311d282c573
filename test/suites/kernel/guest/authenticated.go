package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// keysOf contains the secrets for both directions, by method. right contains the published volume's
// secrets, and other contains different secrets.
var keysOf = map[string]struct{ right, other map[string]string }{
	"dhchap": {
		map[string]string{"dhchap-key": "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", "dhchap-ctrl-key": "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"},
		map[string]string{"dhchap-key": "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:", "dhchap-ctrl-key": "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"},
	},
	"chap": {
		map[string]string{"chap-user": "user", "chap-password": "correct-horse-1", "chap-target-user": "target", "chap-target-password": "battery-staple-2"},
		map[string]string{"chap-user": "user", "chap-password": "wrong-horse-11", "chap-target-user": "target", "chap-target-password": "wrong-staple-22"},
	},
}

// hostKeyOf and targetKeyOf name the secret for each direction.
var (
	hostKeyOf   = map[string]string{"dhchap": "dhchap-key", "chap": "chap-password"}
	targetKeyOf = map[string]string{"dhchap": "dhchap-ctrl-key", "chap": "chap-target-password"}
)

// authenticated uses a volume that requires authentication.
func (s *scenario) authenticated(method string) (err error) {
	defer s.end(&err)
	if err := modprobe("ext4", "nvme-tcp"); err != nil {
		return err
	}
	p, err := newPlugin()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			fmt.Println("guest: the node plugin's log ends with:", p.lastLog())
		}
	}()
	s.step("start the node plugin", func(ctx context.Context) (string, error) { return "", p.start(ctx, false) })
	if method == "chap" {
		s.step("start iscsid", func(context.Context) (string, error) { return "", startISCSID() })
	}
	keys := keysOf[method]
	v := &csiVolume{scenario: s, plugin: p, pod: podOf("keys"), name: "keys", id: "t0:keys", fsType: "ext4"}
	published := func(do string, secrets map[string]string) func(context.Context) (string, error) {
		return func(ctx context.Context) (_ string, err error) {
			v.context, err = s.target.(hostTarget).call(ctx, control.TargetCall{
				Do: do, Volume: v.name, Bytes: 32 * mib, Node: nodeID, Parameters: map[string]string{"authentication": method}, Secrets: secrets,
			})
			if err == nil && v.context[request.KeyMayFormat] == "" {
				v.context[request.KeyMayFormat] = "true"
			}
			return "", err
		}
	}
	refused := func(change func(secrets map[string]string), texts ...string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			v.secrets = maps.Clone(keys.right)
			change(v.secrets)
			_, err := v.stage(ctx)
			detail, err := refusedWith(err, codes.FailedPrecondition, texts...)
			for _, secret := range v.secrets {
				if strings.Contains(detail, secret) && len(secret) > 8 {
					err = errors.Join(err, errors.New("the error contains a secret"))
				}
			}
			return detail, errors.Join(err, notConnected(v.context[connect.KeyNQN]), notLoggedIn(v.context[connect.KeyIQN]))
		}
	}
	host, target := hostKeyOf[method], targetKeyOf[method]
	s.inCase("right, wrong and missing keys, "+method, func() {
		s.step("target: create "+v.name, published(control.Make, keys.right))
		v.step("stage without keys is refused", refused(func(m map[string]string) { clear(m) }, "node-stage-secret-name"))
		v.step("stage without the target's key is refused", refused(func(m map[string]string) {
			delete(m, target)
			delete(m, "chap-target-user")
		}, "the target must authenticate too"))
		v.step("stage with a wrong key is refused", refused(func(m map[string]string) { m[host] = keys.other[host] }, "authentication failed", host))
		v.step("stage with a wrong key of the target is refused", refused(func(m map[string]string) { m[target] = keys.other[target] }, "authentication failed", target))
		v.secrets = keys.right
		v.step("stage with the right keys", v.stage)
		v.step("publish", v.publish)
		v.step("write", v.write)
		v.step("read", v.read)
		v.step("no process has seen a secret in its arguments", func(context.Context) (string, error) {
			return "", noSecretIn(keys.right, pluginLog, filepath.Join(v.staging, "*.json"), "/proc/*/cmdline")
		})
	})
	if method == "dhchap" {
		s.inCase("keys changed under I/O, "+method, func() {
			v.step("change both keys while a file is written", func(ctx context.Context) (string, error) {
				return v.whileWriting(func() error {
					if _, err := published(control.Publish, keys.other)(ctx); err != nil {
						return err
					}
					v.secrets = keys.other
					_, err := v.stage(ctx)
					return err
				})
			})
			v.step("the kernel has the new keys", func(context.Context) (string, error) { return "", v.kernelHas(keys.other["dhchap-key"]) })
			v.step("reconnect with the new keys while a file is written", func(context.Context) (string, error) { return v.whileWriting(v.resetControllers) })
			v.step("read", v.read)
		})
	}
	s.inCase("the end, "+method, func() {
		v.step("unpublish", v.unpublish)
		v.step("unstage", v.unstage)
		v.step("nothing is left", v.gone)
		if method == "chap" {
			v.step("iscsid's record is gone", func(context.Context) (string, error) {
				return "", noSecretIn(keys.right, "/etc/iscsi/nodes/*/*", "/var/lib/iscsi/nodes/*/*")
			})
		}
		v.delete()
	})
	s.step("stop the node plugin", func(context.Context) (string, error) { return "", p.stop(unix.SIGTERM) })
	return nil
}

// noSecretIn checks that no file matching the patterns contains one of the secrets.
func noSecretIn(secrets map[string]string, patterns ...string) (err error) {
	for _, pattern := range patterns {
		files, globErr := filepath.Glob(pattern)
		err = errors.Join(err, globErr)
		for _, file := range files {
			text, _ := os.ReadFile(file) // a process may have ended in the meantime
			for key, secret := range secrets {
				if len(secret) > 8 && bytes.Contains(text, []byte(secret)) {
					err = errors.Join(err, fmt.Errorf("%s contains %s", file, key))
				}
			}
		}
	}
	return err
}

// whileWriting calls a function while it makes synced writes to a file on the volume, and returns
// the duration of the longest write.
func (v *csiVolume) whileWriting(do func() error) (string, error) {
	f, err := os.OpenFile(filepath.Join(v.published, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return "", err
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	var writes int
	var longest time.Duration
	go func() {
		for end := false; ; writes++ {
			start := time.Now()
			_, err := f.Write(bytes.Repeat([]byte{byte(writes)}, 4096))
			if err = errors.Join(err, f.Sync()); err != nil || end {
				ended <- err
				return
			}
			longest = max(longest, time.Since(start))
			select {
			case <-stop:
				end = true // after one more write
			default:
			}
		}
	}()
	err = do()
	time.Sleep(3 * time.Second) // the kernel authenticates in the background
	close(stop)
	err = errors.Join(err, <-ended, f.Close())
	v.figures = fmt.Sprintf("longest write %v", longest.Round(time.Millisecond))
	return fmt.Sprintf("%d writes, the longest %v", writes, longest.Round(time.Millisecond)), err
}

// controllerFiles returns the sysfs files of an attribute of the volume's controllers.
func (v *csiVolume) controllerFiles(attribute string) (found []string, err error) {
	all, err := filepath.Glob("/sys/class/nvme/*/subsysnqn")
	for _, file := range all {
		if text, readErr := os.ReadFile(file); readErr == nil && strings.TrimSpace(string(text)) == v.context[connect.KeyNQN] {
			found = append(found, filepath.Join(filepath.Dir(file), attribute))
		}
	}
	if len(found) == 0 {
		err = errors.Join(err, errors.New("the volume has no controller"))
	}
	return found, err
}

func (v *csiVolume) kernelHas(key string) error {
	files, err := v.controllerFiles("dhchap_secret")
	for _, file := range files {
		if text, readErr := os.ReadFile(file); strings.TrimSpace(string(text)) != key {
			err = errors.Join(err, readErr, fmt.Errorf("%s has a different key", file))
		}
	}
	return err
}

// resetControllers makes the kernel reconnect.
func (v *csiVolume) resetControllers() error {
	files, err := v.controllerFiles("reset_controller")
	for _, file := range files {
		err = errors.Join(err, write(file, "1"))
	}
	return err
}
