package persist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A Configuration is the list of calls that restores a target's configuration. Each call is the
// text that SPDK wrote. The proxy never re-encodes this text, because SPDK may write JSON that
// strict decoders reject.
type Configuration struct {
	Saved      Origin      `json:"spdkgate"` // SPDK ignores this member
	Subsystems []Subsystem `json:"subsystems"`
}

// An Origin records the process and release from which a configuration comes.
type Origin struct {
	Time    time.Time `json:"saved"`
	Release string    `json:"release"`
	Process string    `json:"process"` // see ProcessAt
	Chosen  *Choice   `json:"chosen,omitempty"`
	// Kept maps the digest of each saved call that Process lacked to the SPDK release that wrote
	// the call. See Saver.keep.
	Kept map[string]string `json:"kept,omitempty"`
}

// A Subsystem is a part of SPDK, with the calls that configure it, in the order in which SPDK must
// execute them. The calls are nil if the subsystem has no configuration.
type Subsystem struct {
	Name  string            `json:"subsystem"`
	Calls []json.RawMessage `json:"config"`
}

type entry struct {
	Method string         `json:"method"`
	Params map[string]any `json:"params"`
}

// parse decodes a saved file. It returns an error if spdk_tgt could not load the file.
func parse(text []byte) (*Configuration, error) {
	var c Configuration
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("it is not JSON as SPDK saves it: %w", withoutValues(err))
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

// withoutValues replaces a JSON decoder's error, which may quote secrets, with an error without
// values.
func withoutValues(err error) error {
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("a syntax error at byte %d", syntax.Offset)
	case errors.As(err, &mistyped):
		return fmt.Errorf("a value of the wrong type (%s) at byte %d", mistyped.Value, mistyped.Offset)
	}
	return errors.New("it cannot be decoded")
}

// entryOf decodes the parts of a call that comparisons need. If a member is repeated, the last
// occurrence counts. Numbers remain text.
func entryOf(call json.RawMessage) (e entry, err error) {
	dec := json.NewDecoder(bytes.NewReader(call))
	dec.UseNumber()
	if err := dec.Decode(&e); err != nil {
		return entry{}, fmt.Errorf("a call is not an object with method and params: %w", withoutValues(err))
	}
	if e.Method == "" {
		return entry{}, errors.New("a call has no method")
	}
	return e, nil
}

// text returns the content of the file, indented like the output of SPDK's own script.
func (c *Configuration) text() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(c)
	return b.Bytes(), err
}

func (c *Configuration) calls() (n int) {
	for _, s := range c.Subsystems {
		n += len(s.Calls)
	}
	return n
}
