// Package browser tests the console in a headless Chromium, with spdk-proxy in front of a simulated
// target with 10,000 volumes. It builds the programs itself, and depends only on their HTTP
// responses. Run it with `make test-browser`. With SPDK_SOCK, the tests that can use a small target
// use the real one at that socket, which must be empty. Screenshots are written to $SCREENSHOTS;
// with SCREENSHOTS_AFTER=3m, the test first waits for the plots to fill.
package browser
