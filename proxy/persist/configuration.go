package persist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A Configuration is that of a target at one moment: the calls that make it
// again, each as SPDK wrote it. Entries are never decoded into values and written
// anew: SPDK may write what a strict decoder refuses.
type Configuration struct {
	Saved      Origin      `json:"spdkgate"` // SPDK ignores it
	Subsystems []Subsystem `json:"subsystems"`
}

// An Origin says where a configuration comes from.
type Origin struct {
	Time    time.Time `json:"saved"`
	Release string    `json:"release"`
	Process string    `json:"process"` // see ProcessAt
	Chosen  *Choice   `json:"chosen,omitempty"`
}

// A Subsystem is a part of SPDK, and the calls that configure it in the order to
// make them in; nil if it has no configuration.
type Subsystem struct {
	Name  string            `json:"subsystem"`
	Calls []json.RawMessage `json:"config"`
}

// An entry is what a call of a configuration is known by.
type entry struct {
	Method string         `json:"method"`
	Params map[string]any `json:"params"`
}

// parse reads a saved file, and holds it to the form that spdk_tgt loads.
func parse(text []byte) (*Configuration, error) {
	var c Configuration
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("it is not JSON as SPDK saves it: %w", plainly(err))
	}
	if c.Subsystems == nil {
		return nil, errors.New("it has no subsystems")
	}
	for _, s := range c.Subsystems {
		for _, call := range s.Calls {
			if _, err := entryOf(call); err != nil {
				return nil, fmt.Errorf("subsystem %s: %w", s.Name, err)
			}
		}
	}
	return &c, nil
}

// plainly keeps what was read out of an error: it may be secret.
func plainly(err error) error {
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("a mistake at byte %d", syntax.Offset)
	case errors.As(err, &mistyped):
		return fmt.Errorf("a %s at byte %d", mistyped.Value, mistyped.Offset)
	}
	return errors.New("it cannot be decoded")
}

// entryOf decodes a call as far as it takes to compare it. Of a member that
// stands twice the last one counts, and numbers stay as they are.
func entryOf(call json.RawMessage) (e entry, err error) {
	dec := json.NewDecoder(bytes.NewReader(call))
	dec.UseNumber()
	if err := dec.Decode(&e); err != nil {
		return entry{}, fmt.Errorf("a call is not an object with method and params: %w", plainly(err))
	}
	if e.Method == "" {
		return entry{}, errors.New("a call has no method")
	}
	return e, nil
}

// text is the file: indented, as SPDK's own script writes it.
func (c *Configuration) text() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(c)
	return b.Bytes(), err
}

// calls counts those that there are.
func (c *Configuration) calls() (n int) {
	for _, s := range c.Subsystems {
		n += len(s.Calls)
	}
	return n
}
