// Command web builds the console's front end from src into ../dist. It fetches the pinned npm
// packages, bundles them with esbuild, and adds a hash of the content to each file name. It needs
// neither Node nor npm.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	check := flag.Bool("check", false, "build in memory, and fail if ../dist differs")
	types := flag.Bool("types", false, "check the types of src, on linux/amd64")
	fetch := flag.String("fetch", "", "fetch one package of packages.lock and print its directory")
	lock := flag.String("lock", "", "print the line of packages.lock for NAME@VERSION")
	script := flag.Bool("model", false, "print src/model as one script, which sets the variable model: for tests")
	flag.Parse()
	if err := run(*check, *types, *script, *fetch, *lock); err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

const dist = "../dist"

func run(check, types, script bool, fetch, lock string) error {
	switch {
	case lock != "":
		line, err := lockLine(lock)
		if err == nil {
			fmt.Println(line)
		}
		return err
	case fetch != "":
		folder, err := fetchPackage(fetch)
		if err == nil {
			fmt.Println(folder)
		}
		return err
	}
	if err := fetchPackages("console"); err != nil {
		return err
	}
	if types {
		return checkTypes()
	}
	if script {
		text, err := model()
		if err == nil {
			_, err = os.Stdout.Write(text)
		}
		return err
	}
	files, err := bundle()
	if err != nil {
		return err
	}
	if check {
		return compare(files)
	}
	return write(files)
}

// bundle returns the contents of dist by file name.
func bundle() (map[string][]byte, error) {
	result := api.Build(api.BuildOptions{
		EntryPointsAdvanced: []api.EntryPoint{{InputPath: "src/main.tsx", OutputPath: "console"}},
		Bundle:              true, MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		Format: api.FormatESModule, Target: api.ES2022, Charset: api.CharsetUTF8,
		JSX: api.JSXAutomatic, JSXImportSource: "preact",
		NodePaths: []string{modules}, Outdir: "out", EntryNames: "[name]-[hash]", AssetNames: "[name]-[hash]",
		LegalComments: api.LegalCommentsNone, LogLevel: api.LogLevelWarning, TreeShaking: api.TreeShakingTrue,
	})
	if len(result.Errors) > 0 {
		return nil, errors.New("esbuild failed; its messages are above")
	}
	page, err := os.ReadFile("src/index.html")
	if err != nil {
		return nil, err
	}
	icon, err := os.ReadFile("src/icon.svg")
	if err != nil {
		return nil, err
	}
	iconName := fmt.Sprintf("assets/icon-%X.svg", sha256.Sum256(icon))[:20] + ".svg"
	page = bytes.ReplaceAll(page, []byte("{icon.svg}"), []byte(iconName))
	files := map[string][]byte{iconName: icon}
	for _, f := range result.OutputFiles {
		name := "assets/" + filepath.Base(f.Path)
		files[name] = f.Contents
		page = bytes.ReplaceAll(page, []byte("{console"+filepath.Ext(name)+"}"), []byte(name))
	}
	files["index.html"] = page
	licenses, err := licenses()
	files["LICENSES.txt"] = licenses
	return files, err
}

// model bundles the modules in src/model that work without a page, and formats, into one script.
func model() ([]byte, error) {
	result := api.Build(api.BuildOptions{
		Stdin:  &api.StdinOptions{Contents: `export * from "./audit"; export * from "./document"; export * from "./parse"; export * from "./rpcpy"; export * from "./snippets"; export * from "./value"; export { percent } from "../format"`, ResolveDir: "src/model"},
		Bundle: true, Format: api.FormatIIFE, GlobalName: "model", Target: api.ES2022, Charset: api.CharsetUTF8,
		NodePaths: []string{modules}, LogLevel: api.LogLevelWarning,
	})
	if len(result.Errors) > 0 {
		return nil, errors.New("esbuild failed; its messages are above")
	}
	return result.OutputFiles[0].Contents, nil
}

// licenses returns the license texts of the packages in the bundle, which must accompany every
// copy.
func licenses() ([]byte, error) {
	list, err := readLock()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, p := range list {
		if p.use != "console" {
			continue
		}
		license, err := os.ReadFile(filepath.Join(modules, p.name, "LICENSE"))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "%s %s, https://www.npmjs.com/package/%s\n\n%s\n", p.name, p.version, p.name, license)
	}
	return text.Bytes(), nil
}

// write replaces the contents of dist.
func write(files map[string][]byte) error {
	if err := os.RemoveAll(dist); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dist, "assets"), 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dist, name), text, 0o644); err != nil {
			return err
		}
		fmt.Printf("%7d %6d gzipped  %s\n", len(text), zippedSize(text), name)
	}
	return nil
}

// compare returns an error that lists the files in dist that differ from those built from the
// sources.
func compare(files map[string][]byte) error {
	var there []string
	err := fs.WalkDir(os.DirFS(dist), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			there = append(there, name)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(there)
	if built := slices.Sorted(maps.Keys(files)); !slices.Equal(there, built) {
		return fmt.Errorf("%s has %s, but the sources produce %s: run make console", dist, strings.Join(there, " "), strings.Join(built, " "))
	}
	for name, text := range files {
		committed, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil {
			return err
		}
		if !bytes.Equal(committed, text) {
			return fmt.Errorf("%s/%s differs from what the sources produce: run make console", dist, name)
		}
	}
	return nil
}

// checkTypes runs the TypeScript compiler without emitting output.
func checkTypes() error {
	folder, err := fetchPackage("@typescript/typescript-linux-x64")
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(folder, "lib", "tsc"), "--noEmit", "-p", ".")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("check types: %w", err)
	}
	return nil
}
