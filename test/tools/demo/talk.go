package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// facts summarizes the proxy's log of the whole run. It returns an error if the log contains a
// password.
func (d *demo) facts() ([]string, error) {
	log, err := os.ReadFile(d.path("spdk-proxy.log"))
	if err != nil {
		return nil, err
	}
	calls, refused := 0, 0
	for line := range bytes.Lines(log) {
		var entry struct {
			Decision string `json:"decision"`
		}
		if json.Unmarshal(line, &entry) != nil || entry.Decision == "" {
			continue
		}
		calls++
		if entry.Decision != "allow" {
			refused++
		}
	}
	for user, password := range d.passwords {
		if bytes.Contains(log, []byte(password)) {
			return nil, fmt.Errorf("the proxy's log contains the password of %s", user)
		}
	}
	return []string{fmt.Sprintf("The proxy's audit log has %d calls, of which %d were refused. It contains no password.", calls, refused)}, nil
}

// instructions returns commands that users can try on the programs that --keep leaves running.
func (w *testbed) instructions() string {
	return fmt.Sprintf(`
Both programs are still running; their files are in %[1]s. Try:

  curl --cacert %[1]s/tls/tls.crt --user %[2]s:"$(cat %[1]s/%[2]s.password)" \
    -d '{"jsonrpc":"2.0","id":1,"method":"bdev_lvol_get_lvstores"}' %[3]s

  %[4]s/spdk-proxy call bdev_get_bdevs --url %[3]s --ca %[1]s/tls/tls.crt \
    --user %[2]s --password-file %[1]s/%[2]s.password

  csc -e unix://%[1]s/csi.sock identity plugin-info

  tail -f %[1]s/spdk-proxy.log %[1]s/spdk-csi.log

Press Ctrl-C to stop them.
`, w.dir, csiUser, w.proxyURL, w.bin)
}
