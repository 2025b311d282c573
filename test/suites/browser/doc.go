// Package browser tests the console in a headless Chromium, with spdk-proxy in front of a simulated
// target with 10,000 volumes. It builds the programs and knows only what they serve. `make
// test-browser` runs it. Screenshots are written to $SCREENSHOTS; SCREENSHOTS_AFTER=3m leaves time
// for their plots to fill.
package browser
