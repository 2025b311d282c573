package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sysctlFile = "sysctls.json"
	// Mounts and cgroups disappear shortly after their last process has ended. clean waits up to
	// cleanTimeout for this to happen.
	cleanTimeout  = 20 * time.Second
	cleanInterval = 50 * time.Millisecond
)

// prepare saves the kernel settings and creates the cgroups.
func prepare(dir string, o Options) error {
	values := map[string]string{}
	for _, name := range o.Sysctls {
		value, err := os.ReadFile(sysctlPath(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		values[name] = strings.TrimSpace(string(value))
	}
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, sysctlFile), text, 0o600); err != nil {
		return err
	}
	for _, h := range hierarchies() {
		if err := os.Mkdir(filepath.Join(h, Cgroup(dir)), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// clean removes everything that an ended sandbox has left on the machine, and finally its state
// directory.
func clean(dir string, o Options) error {
	errs := []error{restoreSysctls(dir), eventually("loop devices", func() ([]string, error) { return detachLoops(filepath.Join(dir, o.LoopDir), anyLabel) })}
	for _, h := range hierarchies() {
		errs = append(errs, eventually("cgroups", func() ([]string, error) { return removeCgroup(filepath.Join(h, Cgroup(dir))) }))
	}
	if o.Keep != "" {
		errs = append(errs, save(filepath.Join(dir, o.Saved), filepath.Join(o.Keep, filepath.Base(dir))))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up after %s, which is kept for the next run to try again: %w", dir, err)
	}
	return os.RemoveAll(dir)
}

// save copies a directory, unless the run ended before it created the directory.
func save(from, to string) error {
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return os.CopyFS(to, os.DirFS(from))
}

// eventually repeats an attempt until it reports that nothing is left.
func eventually(action string, attempt func() (left []string, err error)) error {
	for deadline := time.Now().Add(cleanTimeout); ; time.Sleep(cleanInterval) {
		left, err := attempt()
		if err == nil && len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("%s are left: %s", action, strings.Join(left, ", ")), err)
		}
	}
}

func sysctlPath(name string) string {
	return filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
}

func restoreSysctls(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, sysctlFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the run ended before it changed anything
	}
	if err != nil {
		return err
	}
	var values map[string]string
	if err := json.Unmarshal(text, &values); err != nil {
		return err
	}
	var errs []error
	for name, value := range values {
		now, err := os.ReadFile(sysctlPath(name))
		if err == nil && strings.TrimSpace(string(now)) != value {
			err = os.WriteFile(sysctlPath(name), []byte(value), 0)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// hierarchies returns the roots of the cgroup hierarchies. With version 1, there is one for each
// controller; otherwise, there is only one.
func hierarchies() []string {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}
	}
	var found []string
	entries, _ := os.ReadDir(root)
	for _, e := range entries {
		if info, err := os.Stat(filepath.Join(root, e.Name(), "cgroup.procs")); e.IsDir() && err == nil && info.Mode().IsRegular() {
			found = append(found, filepath.Join(root, e.Name()))
		}
	}
	return found
}

// removeCgroup removes a cgroup with everything below it, and returns the cgroups that cannot be
// removed yet.
func removeCgroup(dir string) (left []string, err error) {
	var all []string
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && d.IsDir() {
			all = append(all, p)
		}
		return err
	})
	slices.Reverse(all)
	for _, p := range all {
		if err := unix.Rmdir(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			left = append(left, p)
		}
	}
	return left, err
}

// MakeCgroup creates a cgroup below the sandbox's in all hierarchies.
func MakeCgroup(name string) error {
	for _, h := range hierarchies() {
		if err := os.MkdirAll(filepath.Join(h, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// RemoveCgroup removes a cgroup whose processes have ended from all hierarchies.
func RemoveCgroup(name string) error {
	for _, h := range hierarchies() {
		if err := eventually("cgroups", func() ([]string, error) { return removeCgroup(filepath.Join(h, name)) }); err != nil {
			return err
		}
	}
	return nil
}
