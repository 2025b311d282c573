package kubectl

import (
	"fmt"
	"io"
	"strings"
)

// progressLines prints the lines of a growing log.
type progressLines struct {
	to   io.Writer
	last string // the line that was printed last
}

// print prints the lines of log that follow the line that was printed last, up to the copy's
// PersistentVolume. log is the end of the whole log, and contains complete lines.
func (p *progressLines) print(log string) {
	lines, _, _ := strings.Cut("\n"+log, "\n{\n")
	all := strings.Split(strings.Trim(lines, "\n"), "\n")
	next := 0
	for i, line := range all {
		if line == p.last {
			next = i + 1
		}
	}
	for _, line := range all[next:] {
		p.note(line)
	}
}

// note prints a line, unless it is empty or was printed last.
func (p *progressLines) note(line string) {
	if line != "" && line != p.last {
		fmt.Fprintln(p.to, line)
		p.last = line
	}
}
