// Command snippets converts calls to commands of rpc.py and spdk-proxy, by running the console's
// own TypeScript in Chromium. Its input is a JSON object with the OpenRPC document and the calls,
// {"document": …, "calls": [{"method": …, "params": TEXT}]}. Its output is a list of {"tab": the
// console's tab for rpc.py, "command": arguments of rpc.py, or "", "spdkProxy": the tab for
// spdk-proxy}. The command snippets must be started in test/suites/browser.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/chromedp/chromedp"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "snippets:", err)
		os.Exit(1)
	}
}

const show = `(input) => {
	model.document_.value = input.document;
	return input.calls.map(({ method, params }) => {
		const m = input.document.methods.find((m) => m.name === method), parsed = model.parseParams(m, params);
		if (!parsed || parsed.problems.size > 0) throw new Error(method + " " + params + ": " + [...parsed?.problems ?? []].join("; "));
		return { tab: model.asRPCPy(m, parsed.entries, model.paramsJSON(m, parsed.entries)), command: model.rpcpyCommand(m, parsed.entries)?.join(" ") ?? "",
			spdkProxy: model.asCommand(m, parsed.entries) };
	});
}`

func run() error {
	var input json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {
		return err
	}
	build := exec.Command("go", "run", ".", "-model")
	build.Dir, build.Stderr = "../../../proxy/console/web", os.Stderr
	model, err := build.Output()
	if err != nil {
		return fmt.Errorf("build the console's model: %w", err)
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		return fmt.Errorf("Chromium is missing. Install it: sudo apt-get install chromium: %w", err)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox)...)
	defer stop()
	ctx, cancel := chromedp.NewContext(allocator)
	defer cancel()
	ctx, timeout := context.WithTimeout(ctx, 5*time.Minute)
	defer timeout()
	texts, err := chromedp.Run(ctx, chromedp.Evaluate[json.RawMessage](string(model)+"\n("+show+")("+string(input)+")"))
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(texts)
	return err
}
