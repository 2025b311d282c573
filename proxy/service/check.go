package service

import (
	"errors"
	"fmt"
	"os"

	"github.com/spdkgate/spdkgate/proxy/config"
)

// Check refuses a configuration with which an installed service would not start, and returns
// warnings about what it lacks.
func Check(c *config.Config, of Instance) (warnings []string, err error) {
	if err := errors.Join(CheckInstance(c, of), CheckSocketUnit(c, of)); err != nil {
		return nil, err
	}
	warnings = UnreadableFiles(c.Files(), os.Getenv("CREDENTIALS_DIRECTORY"))
	streams, err := listenStreams(of, unitFolders)
	if err == nil && len(streams) == 0 && of != "" {
		warnings = append(warnings, fmt.Sprintf("%s has no address, so connections are refused while the service restarts: systemctl edit %s, and set ListenStream=%s in [Socket]", of.socketUnit(), of.socketUnit(), c.Listen))
	}
	return warnings, err
}
