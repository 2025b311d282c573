package service

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/spdkgate/spdkgate/proxy/config"
)

const socketUnit = "spdk-proxy.socket"

// unitFolders are the folders where systemd looks for units, in order of precedence.
var unitFolders = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"}

// CheckSocketUnit refuses a configuration that listens at another address or path than
// spdk-proxy.socket, as the service does when it starts. It reads the unit's files,
// since systemd itself may not have read the newest ones. Without the unit, or if it
// is masked, the service opens the address of the configuration.
func CheckSocketUnit(c *config.Config) error { return checkSocketUnit(placesOf(c), unitFolders) }

func checkSocketUnit(configured places, folders []string) error {
	address := configured.https
	streams, err := listenStreams(folders)
	if err != nil {
		return fmt.Errorf("read %s: %w", socketUnit, err)
	}
	if len(streams) == 0 {
		return nil
	}
	want, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil // the check of the configuration reports it
	}
	for _, stream := range streams {
		if strings.HasPrefix(stream, "/") {
			if filepath.Clean(stream) != configured.local {
				return fmt.Errorf("listen_unix.path is %q, but %s listens at %s: the service would not start. %s", configured.local, socketUnit, stream, makeSamePath(configured.local))
			}
			continue
		}
		if have, err := streamAddr(stream); err != nil || !sameAddress(want, have) {
			return fmt.Errorf("listen is %s, but %s listens at %s: the service would not start. %s", address, socketUnit, stream, makeSame(address))
		}
	}
	return nil
}

// makeSame returns what to do when systemd's socket and the configuration differ.
func makeSame(address string) string {
	return fmt.Sprintf("Make them the same (systemctl edit %s: ListenStream= and then ListenStream=%s; then stop both and start spdk-proxy), or do without the socket (systemctl mask --now %s)", socketUnit, address, socketUnit)
}

// makeSamePath is makeSame for the path of a UNIX socket.
func makeSamePath(path string) string {
	return fmt.Sprintf("Make them the same (systemctl edit %s: ListenStream=%s after the address; then stop both and start spdk-proxy), or remove that ListenStream= and let the proxy create the socket", socketUnit, path)
}

// streamAddr returns the address of a ListenStream= line, which may be a port alone.
func streamAddr(stream string) (*net.TCPAddr, error) {
	if !strings.Contains(stream, ":") {
		stream = "[::]:" + stream
	}
	return net.ResolveTCPAddr("tcp", stream)
}

// listenStreams returns the addresses at which the unit and its drop-ins listen; none
// if there is no unit or if it is masked.
func listenStreams(folders []string) ([]string, error) {
	var files []string
	for _, folder := range folders {
		file := filepath.Join(folder, socketUnit)
		if to, err := os.Readlink(file); err == nil && to == os.DevNull {
			return nil, nil // masked
		}
		if _, err := os.Stat(file); err == nil {
			files = []string{file}
			break
		}
	}
	if files == nil {
		return nil, nil
	}
	dropIns := map[string]string{}
	for _, folder := range folders {
		found, err := filepath.Glob(filepath.Join(folder, socketUnit+".d", "*.conf"))
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			if _, hidden := dropIns[filepath.Base(file)]; !hidden {
				dropIns[filepath.Base(file)] = file
			}
		}
	}
	names := make([]string, 0, len(dropIns))
	for name := range dropIns {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		files = append(files, dropIns[name])
	}
	var streams []string
	for _, file := range files {
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
