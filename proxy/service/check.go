package service

import (
	"errors"
	"fmt"
	"os"

	"github.com/spdkgate/spdkgate/proxy/config"
)

// Check returns an error if an installed service would not start with the configuration. It returns
// warnings about missing keys.
func Check(c *config.Config, instance Instance) (warnings []string, err error) {
	if err := errors.Join(CheckInstance(c, instance), CheckSocketUnit(c, instance)); err != nil {
		return nil, err
	}
	warnings = UnreadableFiles(c.Files(), os.Getenv("CREDENTIALS_DIRECTORY"))
	streams, err := listenStreams(instance, unitFolders)
	if err == nil && len(streams) == 0 && instance != "" {
		warnings = append(warnings, fmt.Sprintf("%s has no address, so connections are refused while the service restarts: systemctl edit %s, and set ListenStream=%s in [Socket]", instance.socketUnit(), instance.socketUnit(), c.Listen))
	}
	return warnings, err
}
