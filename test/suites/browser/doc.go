// Package browser tests the console in a headless Chromium, with spdk-proxy in front of a simulated
// target with 10,000 volumes. It builds the programs itself, and depends only on their HTTP
// responses. Run it with `make test-browser`. Screenshots are written to $SCREENSHOTS; with
// SCREENSHOTS_AFTER=3m, the test first waits for the plots to fill.
package browser
