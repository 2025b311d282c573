package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// values checks the values in an input, including the items of arrays, and tracks the line on which
// each value begins.
func (r *run) values(text []byte) {
	// Allow duplicate members here, because each one is an error only in the object that contains
	// it.
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true))
	lines := lineCounter{text: text, line: 1}
	for {
		r.line = lines.at(int(dec.InputOffset()))
		kind := dec.PeekKind()
		if kind == '[' || kind == ']' {
			if _, err := dec.ReadToken(); err != nil {
				r.broken(err, &lines)
				return
			}
			continue
		}
		raw, err := dec.ReadValue()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			r.broken(err, &lines)
			return
		}
		r.line = lines.at(int(dec.InputOffset()) - len(raw))
		r.value(raw)
	}
}

func (r *run) value(raw jsontext.Value) {
	v, err := jsonrpc.DecodeValue(raw, jsonrpc.Limits{})
	if err != nil {
		r.complain("", "", err.Error())
		return
	}
	object, ok := v.(map[string]any)
	if !ok {
		r.complain("", "", "a call or a response must be an object, not "+jsonrpc.TypeName(v))
		return
	}
	r.object(object)
}

func (r *run) broken(err error, lines *lineCounter) {
	message := "not valid JSON; nothing after it was checked"
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) && syntax.Err != nil {
		message = fmt.Sprintf("not valid JSON, %v; nothing after it was checked", syntax.Err)
		r.line = lines.at(min(int(syntax.ByteOffset), len(lines.text)))
	}
	r.complain("", "", message)
}

// lineCounter converts ascending offsets to line numbers.
type lineCounter struct {
	text []byte
	done int
	line int
}

func (l *lineCounter) at(offset int) int {
	if offset > l.done {
		l.line += bytes.Count(l.text[l.done:offset], []byte("\n"))
		l.done = offset
	}
	return l.line
}

// config checks an SPDK configuration file, which contains the calls that SPDK makes for each
// subsystem at startup.
func (r *run) config(file map[string]any) {
	subsystems, _ := file["subsystems"].([]any)
	for i, v := range subsystems {
		subsystem, _ := v.(map[string]any)
		calls, ok := subsystem["config"].([]any)
		if !ok && subsystem["config"] != nil || subsystem == nil {
			r.complain("", fmt.Sprintf("/subsystems/%d", i), "must be an object with subsystem and config, a list of calls")
			continue
		}
		for j, call := range calls {
			at := fmt.Sprintf("/subsystems/%d/config/%d", i, j)
			before := len(r.report.Violations)
			if object, ok := call.(map[string]any); ok {
				r.object(object)
			} else {
				r.complain("", "", "a call must be an object, not "+jsonrpc.TypeName(call))
			}
			for k := range r.report.Violations[before:] {
				v := &r.report.Violations[before+k]
				v.Pointer = at + v.Pointer
			}
		}
	}
}

func isInteger(v any) bool {
	n, ok := v.(json.Number)
	return ok && !strings.ContainsAny(n.String(), ".eE")
}

func keys(m map[string]any) iter.Seq[string] { return maps.Keys(m) }
