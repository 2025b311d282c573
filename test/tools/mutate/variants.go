package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// chosen returns the text that makes a test binary execute the mutant with this number. Each binary
// contains a text of the same length, for mutant 0. The number 0 is not used for mutants.
func chosen(number int) string { return fmt.Sprintf("mutant %09d chosen", number) }

// A variant is a changed copy of a function. The fields from and to are the lines of the copy in
// the rewritten file.
type variant struct {
	mutant   mutant
	from, to int
}

// rewrite returns the file with a changed copy of the enclosing function for each mutant. The
// function calls the copy that contains the mutant selected by the variable chosenMutant. Mutants
// outside functions are left out. All lines of the source keep their numbers.
func rewrite(path string, mutants []mutant) (text []byte, variants []variant, err error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	var edits []edit
	var copies strings.Builder
	line := strings.Count(string(source), "\n") + 1
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		var calls strings.Builder
		begin, end := offset(f.Pos()), offset(f.End())
		for _, m := range mutants {
			if m.from < offset(f.Body.Pos()) || m.to > end {
				continue
			}
			name := f.Name.Name + "Mutant" + strconv.Itoa(m.number)
			copied := apply(source[begin:end], []edit{
				{offset(f.Name.Pos()) - begin, offset(f.Name.End()) - begin, name}, {m.from - begin, m.to - begin, m.new},
			})
			fmt.Fprintf(&copies, "\n\n%s", copied)
			line += 2
			to := line + strings.Count(string(copied), "\n")
			variants = append(variants, variant{m, line, to})
			line = to
			var call string
			call, edits = callCopy(f, name, offset, edits, calls.Len() == 0)
			fmt.Fprintf(&calls, " if chosenMutant == %q { %s };", chosen(m.number), call)
		}
		if calls.Len() > 0 {
			edits = append(edits, edit{offset(f.Body.Lbrace) + 1, offset(f.Body.Lbrace) + 1, calls.String()})
		}
	}
	return append(apply(source, edits), copies.String()...), variants, nil
}

// callCopy returns the statements that call a copy of f with f's arguments. If name is set, it adds
// to the edits the names for the receiver and the parameters that have none.
func callCopy(f *ast.FuncDecl, name string, offset func(token.Pos) int, edits []edit, addNames bool) (string, []edit) {
	unnamed := 0
	names := func(fields *ast.FieldList) (all []string) {
		if fields == nil {
			return nil
		}
		give := func(from, to token.Pos, suffix string) string {
			unnamed++
			given := "mutant" + strconv.Itoa(unnamed)
			if addNames {
				edits = append(edits, edit{offset(from), offset(to), given + suffix})
			}
			return given
		}
		for _, field := range fields.List {
			dots := ""
			if _, ok := field.Type.(*ast.Ellipsis); ok {
				dots = "..."
			}
			if len(field.Names) == 0 {
				all = append(all, give(field.Type.Pos(), field.Type.Pos(), " ")+dots)
			}
			for _, n := range field.Names {
				if n.Name == "_" {
					all = append(all, give(n.Pos(), n.End(), "")+dots)
				} else {
					all = append(all, n.Name+dots)
				}
			}
		}
		return all
	}
	call := name
	if f.Recv != nil {
		call = names(f.Recv)[0] + "." + name
	}
	if f.Type.TypeParams != nil {
		call += "[" + strings.Join(names(f.Type.TypeParams), ", ") + "]"
	}
	call += "(" + strings.Join(names(f.Type.Params), ", ") + ")"
	if f.Type.Results != nil {
		return "return " + call, edits
	}
	return call + "; return", edits
}

// An edit replaces the bytes between two offsets.
type edit struct {
	from, to int
	text     string
}

func apply(source []byte, edits []edit) (text []byte) {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	at := 0
	for _, e := range edits {
		text = slices.Concat(text, source[at:e.from], []byte(e.text))
		at = e.to
	}
	return append(text, source[at:]...)
}

// writeOverlay writes the rewritten files to dir, together with overlay.json, which makes the go
// command read them instead of the source. It returns the variants by the rewritten file's name.
func writeOverlay(dir string, mutants []mutant) (overlay string, variants map[string][]variant, err error) {
	files := map[string][]mutant{}
	for _, m := range mutants {
		files[m.file] = append(files[m.file], m)
	}
	variants, replace, declared := map[string][]variant{}, map[string]string{}, map[string]bool{}
	for i, path := range slices.Sorted(maps.Keys(files)) {
		text, found, err := rewrite(path, files[path])
		if err != nil {
			return "", nil, err
		}
		if len(found) == 0 {
			continue
		}
		p := found[0].mutant.pkg.ImportPath
		variants[strconv.Itoa(i)+".go"] = found
		if !declared[p] {
			declared[p] = true
			text = fmt.Appendf(text, "\n\nvar chosenMutant = %q\n", chosen(0))
		}
		replace[path] = filepath.Join(dir, strconv.Itoa(i)+".go")
		if err := os.WriteFile(replace[path], text, 0o600); err != nil {
			return "", nil, err
		}
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, variants, writeJSON(overlay, replace)
}

// writeOwnOverlay writes an overlay with a single changed file, for a mutant outside functions.
func writeOwnOverlay(dir string, m mutant) (overlay string, err error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "own.go")
	if err := os.WriteFile(changed, apply(source, []edit{{m.from, m.to, m.new}}), 0o600); err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "own.json")
	return overlay, writeJSON(overlay, map[string]string{m.file: changed})
}

func writeJSON(path string, replace map[string]string) error {
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// compileError matches the place of an error in the go command's output: the rewritten file, line.
var compileError = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):`)

// compilable returns the mutants that compile. For mutants outside functions, it sets the field
// apart.
func compilable(ctx context.Context, dir string, mutants []mutant) ([]mutant, error) {
	for {
		overlay, variants, err := writeOverlay(dir, mutants)
		if err != nil {
			return nil, err
		}
		packages, inside := map[string]bool{}, map[int]bool{}
		for _, all := range variants {
			for _, v := range all {
				packages[v.mutant.pkg.ImportPath] = true
				inside[v.mutant.number] = true
			}
		}
		for i := range mutants {
			mutants[i].apart = !inside[mutants[i].number]
		}
		args := append([]string{"build", "-gcflags=-e", "-overlay", overlay}, slices.Sorted(maps.Keys(packages))...)
		out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
		if len(packages) == 0 || err == nil {
			break
		}
		invalid := map[int]bool{}
		for _, found := range compileError.FindAllStringSubmatch(string(out), -1) {
			line, _ := strconv.Atoi(found[2])
			for _, v := range variants[filepath.Base(found[1])] {
				if v.from <= line && line <= v.to {
					invalid[v.mutant.number] = true
				}
			}
		}
		if len(invalid) == 0 {
			return nil, fmt.Errorf("go build: %s", out)
		}
		mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return invalid[m.number] })
	}
	return slices.DeleteFunc(mutants, func(m mutant) bool {
		if !m.apart {
			return false
		}
		overlay, err := writeOwnOverlay(dir, m)
		return err != nil || exec.CommandContext(ctx, "go", "build", "-overlay", overlay, m.pkg.ImportPath).Run() != nil
	}), ctx.Err()
}
