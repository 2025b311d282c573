package browser

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// limit is a timeout that a passing test never reaches.
const limit = 3 * time.Minute

// A page is a tab in its own browser. It records the tab's requests and console messages.
type page struct {
	t        *testing.T
	ctx      context.Context
	testbed  *testbed
	mu       sync.Mutex
	requests []string // addresses
	others   []string // origins that the test itself opens
	problems []string // errors and warnings that the browser has written to its console
}

var chromiums = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range chromiums {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("Chromium is missing. Install it: sudo apt-get install chromium")
	return ""
}

func insecureClient() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: limit}
}

// newPage opens a browser that does not share cookies or storage with other pages.
func newPage(t *testing.T) *page {
	t.Helper()
	return newPageAt(t, sharedTestbed(t))
}

// newPageAt opens a browser for a testbed with additional options.
func newPageAt(t *testing.T, w *testbed, more ...chromedp.ExecAllocatorOption) *page {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.Flag("ignore-certificate-errors", true), chromedp.WindowSize(1440, 900), chromedp.NoSandbox,
		chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("disable-component-update", true))
	options = append(options, more...)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	ctx, timeout := context.WithTimeout(ctx, 10*limit)
	t.Cleanup(timeout)
	p := &page{t: t, ctx: ctx, testbed: w}
	require.NoError(t, chromedp.Do(ctx))
	require.NoError(t, chromedp.Listen(ctx, p.note))
	require.NoError(t, chromedp.Do(ctx, command0(network.Enable, network.EnableParams{}), command0(runtime.Enable, cdp.Empty{})))
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, address := range p.requests {
			if !slices.ContainsFunc(append(p.others, w.url, "data:", "about:"), func(own string) bool { return strings.HasPrefix(address, own) }) {
				t.Errorf("the console requested another origin: %s", address)
			}
		}
		for _, problem := range p.problems {
			t.Errorf("the browser's console contains: %s", problem)
		}
	})
	return p
}

func (p *page) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, fmt.Sprint(e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" {
			var parts []string
			for _, a := range e.Args {
				parts = append(parts, string(a.Value)+a.Description)
			}
			p.problems = append(p.problems, strings.Join(parts, " "))
		}
	}
}

// command0 is an action that sends the browser a command without a result.
func command0[P any](c cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

func (p *page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.fail(err)
	}
}

// fail reports an error with the contents of the page, and ends the test.
func (p *page) fail(err error) {
	p.t.Helper()
	text, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string](`document.body.innerText.slice(0, 1500)`))
	p.t.Fatalf("%v\nThe page shows:\n%s\nThe proxy's log ends with:\n%s", err, text, p.testbed.log.tail())
}

// eval runs JavaScript, which may return a promise, and returns its value.
func eval[T any](p *page, script string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		p.fail(fmt.Errorf("%s: %w", script[:min(len(script), 300)], err))
	}
	return value
}

// until waits until an expression is true. A timer evaluates the expression, because a headless
// browser on a busy machine can stop drawing, and a page without frames would never evaluate it.
func (p *page) until(condition string) {
	p.t.Helper()
	if _, err := chromedp.Run(p.ctx, chromedp.Poll[bool](condition, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(limit))); err != nil {
		p.fail(fmt.Errorf("wait for %s: %w", condition, err))
	}
}

// has waits until the page contains a string.
func (p *page) has(text string) {
	p.t.Helper()
	quoted, _ := json.Marshal(text)
	p.until(`document.body.innerText.includes(` + string(quoted) + `)`)
}

func (p *page) open(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.testbed.url + "/console/" + path))
}

// show opens a page of the console.
func (p *page) show(hash string) {
	p.t.Helper()
	quoted, _ := json.Marshal("#/" + hash)
	eval[chromedp.Void](p, `location.hash = `+string(quoted)+`; null`)
}

// press clicks the button or link with the given text or label, in the dialog if one is open.
func (p *page) press(name string) {
	p.t.Helper()
	quoted, _ := json.Marshal(name)
	const find = `[...(document.querySelector("dialog[open]") ?? document).querySelectorAll("button, a")].find((b) => !b.disabled && (b.innerText.trim() === NAME || b.getAttribute("aria-label") === NAME))`
	found := strings.ReplaceAll(find, "NAME", string(quoted))
	p.until(`!!` + found)
	eval[chromedp.Void](p, found+`.click(); null`)
}

// fill types into the field with the given label, as a user does.
func (p *page) fill(label, value string) {
	p.t.Helper()
	name, _ := json.Marshal(label)
	text, _ := json.Marshal(value)
	find := fmt.Sprintf(`[...document.querySelectorAll("input, textarea, select")].find((f) => [...(f.labels ?? [])].some((l) => l.innerText.trim() === %[1]s) || f.getAttribute("aria-label") === %[1]s)`, name)
	p.until(`!!` + find)
	eval[chromedp.Void](p, fmt.Sprintf(`(() => { const f = %s; f.focus(); f.value = %s; f.dispatchEvent(new Event("input", { bubbles: true })); f.dispatchEvent(new Event("change", { bubbles: true })); return null })()`, find, text))
}

// keys types the given keys.
func (p *page) keys(pressed string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(pressed))
}

// tabTo presses Tab until a condition is true of the focused element, f.
func (p *page) tabTo(condition string) {
	p.t.Helper()
	for range 80 {
		if eval[bool](p, `((f) => `+condition+`)(document.activeElement)`) {
			return
		}
		p.keys(kb.Tab)
	}
	p.fail(fmt.Errorf("pressing Tab 80 times did not reach %s", condition))
}

func (p *page) signIn(user string) {
	p.t.Helper()
	p.open("")
	p.fill("User", user)
	p.fill("Password", password)
	p.press("Sign in")
	p.until(`!!document.querySelector("nav")`)
}

func screenshotFolder(t *testing.T) string {
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		return t.TempDir()
	}
	require.NoError(t, os.MkdirAll(folder, 0o755))
	return folder
}
