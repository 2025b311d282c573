package check

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A Violation is one place in the input that does not match the schema.
type Violation struct {
	File    string
	Line    int    // line on which the call or response begins
	Method  string // "" means unknown
	Pointer string // JSON pointer into the call or response, such as /params/nqn
	Message string // never contains a value from the input, because it may be secret
}

func (v Violation) String() string {
	s := fmt.Sprintf("%s:%d: ", v.File, v.Line)
	if v.Method != "" {
		s += v.Method + ": "
	}
	if v.Pointer != "" {
		s += v.Pointer + ": "
	}
	return s + v.Message
}

// A Report contains the results for one or more inputs.
type Report struct {
	Calls, Results, Errors int // how many calls, results and errors were checked
	Violations             []Violation
}

// Add adds the results of other to r.
func (r *Report) Add(other *Report) {
	r.Calls += other.Calls
	r.Results += other.Results
	r.Errors += other.Errors
	r.Violations = append(r.Violations, other.Violations...)
}

// Write prints the violations, one per line, followed by a summary.
func (r *Report) Write(w io.Writer) error {
	for _, v := range r.Violations {
		if _, err := fmt.Fprintln(w, v); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d calls, %d results and %d errors checked, %d violations\n", r.Calls, r.Results, r.Errors, len(r.Violations))
	return err
}

// A Checker checks input against one release. The zero Release means all releases.
type Checker struct {
	Document *rpcschema.Document
	Release  rpcschema.Release
}

// Read checks everything in one input. The report refers to the input as file. Input that is not
// JSON is also a violation; an error means that the input could not be read.
func (c Checker) Read(file string, in io.Reader) (*Report, error) {
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	run := &run{Checker: c, file: file, asked: map[string]string{}}
	run.values(text)
	return &run.report, nil
}

// A run checks one input.
type run struct {
	Checker
	file   string
	line   int
	asked  map[string]string // maps an id to the method of the last request with that id
	noID   string            // method of the preceding request, if that request has no id
	report Report
}

func (r *run) complain(method, pointer, message string) {
	r.report.Violations = append(r.report.Violations, Violation{File: r.file, Line: r.line, Method: method, Pointer: pointer, Message: message})
}

// object checks a call, a response, or an object that contains both.
func (r *run) object(object map[string]any) {
	if _, config := object["subsystems"]; config {
		r.config(object)
		return
	}
	for _, name := range slices.Sorted(keys(object)) {
		if !slices.Contains(members, name) {
			r.complain("", "/"+name, "unknown member: the members of a call are "+strings.Join(members, ", "))
		}
	}
	method, isCall := r.methodOf(object)
	if method == "" {
		return
	}
	if isCall {
		r.params(method, object["params"])
	}
	result, hasResult := object["result"]
	failure, hasError := object["error"]
	switch {
	case hasResult && hasError:
		r.complain(method, "", "must have a result or an error, not both")
	case hasResult:
		r.report.Results++
		r.addViolations(method, "/result", r.Document.ValidateResult(method, result, r.Release))
	case hasError:
		r.failure(method, failure)
	}
}

var members = []string{"jsonrpc", "id", "method", "params", "result", "error"}

// methodOf returns an object's method. A call names its own method. A response belongs to the
// preceding request if that request has no id, and otherwise to the last request with the same id.
func (r *run) methodOf(object map[string]any) (method string, isCall bool) {
	id, hasID := object["id"]
	key := fmt.Sprintf("%T %v", id, id) // the number 1 and the string "1" are different ids
	before := r.noID
	r.noID = ""
	value, given := object["method"]
	if given {
		method, ok := value.(string)
		if !ok || method == "" {
			r.complain("", "/method", "must be the name of a method")
			return "", true
		}
		if hasID {
			r.asked[key] = method
		} else {
			r.noID = method
		}
		return method, true
	}
	_, result := object["result"]
	_, failure := object["error"]
	if !result && !failure {
		r.complain("", "", "not a call or a response: it has no method, result or error")
		return "", false
	}
	if before != "" {
		return before, false
	}
	method, asked := r.asked[key]
	if !asked {
		r.complain("", "/id", "no request with this id comes before this response")
	}
	return method, false
}

func (r *run) params(method string, value any) {
	r.report.Calls++
	params, ok := value.(map[string]any)
	if !ok && value != nil {
		r.complain(method, "/params", "must be an object of named parameters, not "+jsonrpc.TypeName(value))
		return
	}
	r.addViolations(method, "/params", r.Document.ValidateParams(method, params, r.Release))
}

// failure checks the form of an error. Error codes that the schema does not list are accepted,
// because the schema's lists may be incomplete.
func (r *run) failure(method string, value any) {
	r.report.Errors++
	failure, ok := value.(map[string]any)
	if !ok {
		r.complain(method, "/error", "must be an object with code and message, not "+jsonrpc.TypeName(value))
		return
	}
	if !isInteger(failure["code"]) {
		r.complain(method, "/error/code", "must be an integer")
	}
	if _, ok := failure["message"].(string); !ok {
		r.complain(method, "/error/message", "must be a string")
	}
}

// addViolations converts a validation error to violations.
func (r *run) addViolations(method, at string, err error) {
	var violations rpcschema.Violations
	switch {
	case err == nil:
	case errors.As(err, &violations):
		for _, v := range violations {
			r.complain(method, at+v.Pointer, v.Message)
		}
	default:
		r.complain(method, at, err.Error())
	}
}
