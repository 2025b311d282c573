// Command rpcgen generates one OpenRPC document and the typed client from the hand-written
// descriptions of SPDK's RPCs (areas/*.yaml).
//
// The package depends on the format of the area files and on Go's syntax, but must not depend on
// transports.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spdkgate/spdkgate/rpcschema"
)

func main() {
	areas := flag.String("areas", "areas", "directory of the area files")
	var to outputs
	flag.StringVar(&to.openrpc, "openrpc", "openrpc.json", "OpenRPC document to write")
	flag.StringVar(&to.client, "client", "spdkrpc", "directory to write the typed client to")
	flag.StringVar(&to.manual, "manual", "", "directory to write the manual of the methods to, in Markdown")
	flag.StringVar(&to.html, "html", "", "directory to write the manual to in HTML, and nothing else")
	flag.Parse()
	if err := run(*areas, to); err != nil {
		fmt.Fprintln(os.Stderr, "rpcgen:", err)
		os.Exit(1)
	}
}

// outputs holds the output paths. An output without a path is not written.
type outputs struct{ openrpc, client, manual, html string }

func run(areas string, to outputs) error {
	text, err := assemble(areas)
	if err != nil {
		return err
	}
	doc, err := rpcschema.Load(text)
	if err != nil {
		return err
	}
	if err := lint(doc); err != nil {
		return err
	}
	manual, err := manual(doc)
	if err != nil {
		return err
	}
	if to.html != "" {
		return writeHTML(to.html, manual)
	}
	if to.manual != "" {
		if err := writeManual(to.manual, manual); err != nil {
			return err
		}
	}
	files, err := generate(doc)
	if err != nil {
		return err
	}
	if err := checkSpelling(files); err != nil {
		return err
	}
	if err := os.WriteFile(to.openrpc, text, 0o644); err != nil {
		return err
	}
	stale, err := filepath.Glob(filepath.Join(to.client, "*_gen.go"))
	if err != nil {
		return err
	}
	for _, path := range stale {
		if _, kept := files[filepath.Base(path)]; !kept {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for name, source := range files {
		if err := os.WriteFile(filepath.Join(to.client, name), source, 0o644); err != nil {
			return err
		}
	}
	return nil
}
