package main

import (
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The metrics include the number of reloads and the proxy's version.
func TestReloadsAreCounted(t *testing.T) {
	path := writeConfig(t, target(t).Socket(), "metrics: {listen: \"127.0.0.1:0\"}\n")
	d := start(t, nil, "serve", "--config", path)
	d.waitFor("serving metrics")
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/metrics`).FindString(d.log.String())
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	scrape := func() string {
		resp, err := client.Get(url)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(text)
	}
	assert.Regexp(t, `spdk_proxy_build_info\{goversion="go1[^"]*",version="[^"]+"\} 1`, scrape())
	assert.Contains(t, scrape(), "\nspdk_proxy_config_last_reload_successful 1\n")
	assert.Regexp(t, `spdk_proxy_certificate_expiry_timestamp_seconds\{certificate="server"\} [1-9]\.`, scrape())

	change(t, path, "metrics:", "metric:") // a mistake that only parsing detects
	d.hangUp()
	d.waitFor("reload refused")
	text := scrape()
	assert.Contains(t, text, "\nspdk_proxy_config_last_reload_successful 0\n")
	assert.Contains(t, text, `spdk_proxy_config_reloads_total{result="failure"} 1`)

	change(t, path, "metric:", "metrics:")
	d.hangUp()
	d.waitFor(`"msg":"reloaded"`)
	text = scrape()
	assert.Contains(t, text, "\nspdk_proxy_config_last_reload_successful 1\n")
	assert.Regexp(t, `spdk_proxy_config_reloads_total\{result="success"\} [1-9]`, text)
}
