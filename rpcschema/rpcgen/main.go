// Command rpcgen turns the hand-written descriptions of SPDK's RPCs
// (areas/*.yaml) into one OpenRPC document and into the typed client.
//
// It knows the format of the areas and Go's syntax, and nothing of transports.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spdkgate/spdkgate/rpcschema"
)

func main() {
	areas := flag.String("areas", "areas", "folder of the area files")
	openrpc := flag.String("openrpc", "openrpc.json", "OpenRPC document to write")
	client := flag.String("client", "spdkrpc", "folder to write the typed client to")
	flag.Parse()
	if err := run(*areas, *openrpc, *client); err != nil {
		fmt.Fprintln(os.Stderr, "rpcgen:", err)
		os.Exit(1)
	}
}

func run(areas, openrpc, client string) error {
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
	files, err := generate(doc)
	if err != nil {
		return err
	}
	if err := checkSpelling(files); err != nil {
		return err
	}
	if err := os.WriteFile(openrpc, text, 0o644); err != nil {
		return err
	}
	stale, err := filepath.Glob(filepath.Join(client, "*_gen.go"))
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
		if err := os.WriteFile(filepath.Join(client, name), source, 0o644); err != nil {
			return err
		}
	}
	return nil
}
