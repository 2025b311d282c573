package targetmetrics

import (
	"strconv"
	"strings"
)

// A writer writes metrics. Metric and label names are constants.
type writer struct{ out []byte }

// These are the types of metrics.
const (
	gauge   = "gauge"
	counter = "counter"
)

// family begins a metric. The caller must then write all samples of this metric.
func (w *writer) family(name, kind, help string) {
	w.out = append(w.out, "# HELP "...)
	w.out = append(w.out, name...)
	w.out = append(w.out, ' ')
	w.out = append(w.out, help...)
	w.out = append(w.out, "\n# TYPE "...)
	w.out = append(w.out, name...)
	w.out = append(w.out, ' ')
	w.out = append(w.out, kind...)
	w.out = append(w.out, '\n')
}

// sample writes a sample. labels is the result of labelled, or "".
func (w *writer) sample(name, labels string, value float64) {
	w.begin(name, labels)
	w.out = strconv.AppendFloat(w.out, value, 'g', -1, 64)
	w.out = append(w.out, '\n')
}

// count writes a sample with an integer value.
func (w *writer) count(name, labels string, value uint64) {
	w.begin(name, labels)
	w.out = strconv.AppendUint(w.out, value, 10)
	w.out = append(w.out, '\n')
}

func (w *writer) begin(name, labels string) {
	w.out = append(w.out, name...)
	if labels != "" {
		w.out = append(w.out, '{')
		w.out = append(w.out, labels...)
		w.out = append(w.out, '}')
	}
	w.out = append(w.out, ' ')
}

// one writes a metric with one sample.
func (w *writer) one(name, kind, help string, value float64) {
	w.family(name, kind, help)
	w.sample(name, "", value)
}

// labelled formats labels, given as alternating names and values. Values come from the target,
// which may use any bytes in names.
func labelled(pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(pairs[i])
		b.WriteString(`="`)
		b.WriteString(escape.Replace(strings.ToValidUTF8(pairs[i+1], "�")))
		b.WriteByte('"')
	}
	return b.String()
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
