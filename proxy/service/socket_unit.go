package service

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/spdkgate/spdkgate/proxy/config"
)

// unitFolders lists the directories in which systemd looks for units, in order of precedence.
var unitFolders = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"}

// CheckSocketUnit returns an error if the configured address or path differs from that in the
// service's socket unit, as the service itself does when it starts. It reads the unit's files,
// because systemd may not have read the latest changes. If there is no unit, or if the unit is
// masked, the service itself opens the configured address.
func CheckSocketUnit(c *config.Config, instance Instance) error {
	return checkSocketUnit(placesOf(c), instance, unitFolders)
}

func checkSocketUnit(configured places, instance Instance, folders []string) error {
	address, socketUnit := configured.https, instance.socketUnit()
	streams, err := listenStreams(instance, folders)
	if err != nil {
		return fmt.Errorf("read %s: %w", socketUnit, err)
	}
	want, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil // the configuration check reports it
	}
	for _, stream := range streams {
		if strings.HasPrefix(stream, "/") {
			if filepath.Clean(stream) != configured.local {
				return fmt.Errorf("listen_unix.path is %q, but %s listens at %s: the service would not start. %s", configured.local, socketUnit, stream, makeSamePath(instance, configured.local))
			}
			continue
		}
		if have, err := streamAddr(stream); err != nil || !sameAddress(want, have) {
			return fmt.Errorf("listen is %s, but %s listens at %s: the service would not start. %s", address, socketUnit, stream, makeSame(instance, address))
		}
	}
	return nil
}

// makeSame returns the part of an error that explains how to resolve a difference between systemd's
// socket and the configuration.
func makeSame(instance Instance, address string) string {
	return fmt.Sprintf("Make them the same (systemctl edit %s: ListenStream= and then ListenStream=%s; then stop both and start %s), or do without the socket (systemctl mask --now %s)", instance.socketUnit(), address, instance.unit(), instance.socketUnit())
}

// makeSamePath is like makeSame, but for the path of a UNIX socket.
func makeSamePath(instance Instance, path string) string {
	return fmt.Sprintf("Make them the same (systemctl edit %s: ListenStream=%s after the address; then stop both and start %s), or remove that ListenStream= and let the proxy create the socket", instance.socketUnit(), path, instance.unit())
}

// streamAddr returns the address in a ListenStream= line, which may contain only a port.
func streamAddr(stream string) (*net.TCPAddr, error) {
	if !strings.Contains(stream, ":") {
		stream = "[::]:" + stream
	}
	return net.ResolveTCPAddr("tcp", stream)
}

// listenStreams returns the addresses in an instance's socket unit and its drop-ins, or none if the
// unit is missing or masked. An instance uses the template's unit unless it has its own, and uses
// the drop-ins of both.
func listenStreams(instance Instance, folders []string) ([]string, error) {
	names := []string{instance.socketUnit()}
	if instance != "" {
		names = append(names, program+"@.socket")
	}
	unitFile := firstUnit(names, folders)
	if unitFile == "" {
		return nil, nil
	}
	more, err := dropInsOf(names, folders)
	if err != nil {
		return nil, err
	}
	var streams []string
	for _, file := range append([]string{unitFile}, more...) {
		f, err := os.Open(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		options, err := unit.DeserializeOptions(f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, o := range options {
			switch {
			case o.Section != "Socket" || o.Name != "ListenStream":
			case o.Value == "": // an empty value resets the list
				streams = nil
			default:
				streams = append(streams, o.Value)
			}
		}
	}
	return streams, nil
}

// firstUnit returns the unit file that systemd reads, or "" if the unit is missing or masked.
func firstUnit(names, folders []string) string {
	for _, name := range names {
		for _, folder := range folders {
			file := filepath.Join(folder, name)
			if to, err := os.Readlink(file); err == nil && to == os.DevNull {
				return ""
			}
			if _, err := os.Stat(file); err == nil {
				return file
			}
		}
	}
	return ""
}

// dropInsOf returns a unit's drop-ins in the order in which systemd reads them. Of several drop-ins
// with the same file name, only the first counts. Drop-ins for the unit's own name come before
// those of the template, and each of these groups is in the order of the directories.
func dropInsOf(names, folders []string) ([]string, error) {
	found := map[string]string{}
	for _, name := range names {
		for _, folder := range folders {
			files, err := filepath.Glob(filepath.Join(folder, name+".d", "*.conf"))
			if err != nil {
				return nil, err
			}
			for _, file := range files {
				if _, hidden := found[filepath.Base(file)]; !hidden {
					found[filepath.Base(file)] = file
				}
			}
		}
	}
	var files []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		files = append(files, found[name])
	}
	return files, nil
}
