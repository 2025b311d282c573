package kubectl

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// A Format selects how rows are printed.
type Format string

// Table prints the most important columns; Wide prints all columns.
const (
	Table Format = ""
	Wide  Format = "wide"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats lists the formats that a user can request.
var Formats = []string{string(Wide), string(JSON), string(YAML)}

// Set sets the format. With Set, a Format can be used as a flag.
func (f *Format) Set(s string) error {
	if !slices.Contains(Formats, s) {
		return fmt.Errorf("use %s", strings.Join(Formats, ", "))
	}
	*f = Format(s)
	return nil
}

func (f *Format) String() string { return string(*f) }

// Type returns the flag's type for help texts.
func (f *Format) Type() string { return "format" }

// A column consists of a heading and a function that returns the cell for a row.
type column[T any] struct {
	heading string
	wide    bool // only in wide tables
	cell    func(T) string
}

// printRows prints rows as a table, or as {"items": [...]} in formats for programs.
func printRows[T any](w io.Writer, format Format, columns []column[T], rows []T) error {
	if rows == nil {
		rows = []T{}
	}
	switch format {
	case JSON, YAML:
		items := map[string]any{"items": rows}
		if format == YAML {
			text, err := json.Marshal(items)
			if err != nil {
				return err
			}
			var value any
			if err := yaml.Unmarshal([]byte(printable.String(string(text))), &value); err != nil { // JSON is valid YAML, except for control characters
				return err
			}
			e := yaml.NewEncoder(w)
			e.SetIndent(2)
			return e.Encode(value)
		}
		text, err := json.MarshalIndent(items, "", "  ")
		if err == nil {
			_, err = fmt.Fprintln(w, string(text))
		}
		return err
	}
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.wide && format != Wide })
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	line := func(cell func(column[T]) string) {
		for i, c := range columns {
			text := printable.String(strings.NewReplacer("\n", " ", "\t", " ").Replace(cell(c)))
			if text == "" {
				text = "-"
			}
			if i < len(columns)-1 {
				text += "\t"
			}
			_, _ = io.WriteString(t, text)
		}
		_, _ = io.WriteString(t, "\n")
	}
	line(func(c column[T]) string { return c.heading })
	for _, r := range rows {
		line(func(c column[T]) string { return c.cell(r) })
	}
	return t.Flush()
}

// size formats bytes in the units of Kubernetes, such as 1.5Gi.
func size(bytes int64) string {
	value, unit := float64(bytes), ""
	for _, next := range []string{"Ki", "Mi", "Gi", "Ti", "Pi"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, next
	}
	return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0") + unit
}

// counted joins sorted words, and appends the number of repetitions: a, b(2).
func counted(words []string) string {
	var parts []string
	for i := 0; i < len(words); {
		n := 1
		for i+n < len(words) && words[i+n] == words[i] {
			n++
		}
		part := words[i]
		if n > 1 {
			part += "(" + strconv.Itoa(n) + ")"
		}
		parts, i = append(parts, part), i+n
	}
	return strings.Join(parts, ",")
}

// age formats the time since at, as kubectl does.
func age(now time.Time, at *time.Time) string {
	if at == nil {
		return ""
	}
	switch d := now.Sub(*at); {
	case d < 2*time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	default:
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	}
}
