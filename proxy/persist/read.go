package persist

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// An Ask makes one of the proxy's own calls to the target.
type Ask = func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error)

// A Target is one process of the target. Ask returns a response from this process, never from a
// later process, or an error.
type Target struct {
	Ask     Ask
	Release rpcschema.Release
	Process string // see ProcessAt; determined before the first call
}

// ProcessAt returns a unique name for the process that created the socket. It derives the name from
// the socket's inode, because SPDK creates a new socket at each start.
func ProcessAt(socket string) (string, error) {
	info, err := os.Stat(socket)
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("stat %s: no inode", socket)
	}
	return fmt.Sprintf("%x-%x-%d.%09d", st.Dev, st.Ino, st.Mtim.Sec, st.Mtim.Nsec), nil
}

// read reads the configuration of all subsystems, as SPDK's save_config does. It sends the requests
// concurrently, but SPDK may execute them in different polls; see readSteady. disableAutoExamine is
// described in Options.
func read(ctx context.Context, t Target, disableAutoExamine bool) (*Configuration, error) {
	text, err := t.Ask(ctx, "framework_get_subsystems", nil)
	if err != nil {
		return nil, fmt.Errorf("framework_get_subsystems: %w", err)
	}
	var list []struct {
		Subsystem string `json:"subsystem"`
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list) == 0 {
		return nil, errors.New("framework_get_subsystems: the response is not a list of subsystems")
	}
	c := &Configuration{
		Saved:      Origin{Time: time.Now().UTC(), Release: t.Release.String(), Process: t.Process},
		Subsystems: make([]Subsystem, len(list)),
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for i, s := range list {
		if s.Subsystem == "" {
			return nil, errors.New("framework_get_subsystems: a subsystem has no name")
		}
		group.Go(func() error {
			text, err := t.Ask(groupCtx, "framework_get_config", map[string]any{"name": s.Subsystem})
			if err != nil {
				return fmt.Errorf("framework_get_config of %s: %w", s.Subsystem, err)
			}
			c.Subsystems[i], err = subsystem(s.Subsystem, text, t.Release)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i := range c.Subsystems {
		if err := c.Subsystems[i].examineBases(ctx, t.Ask, disableAutoExamine); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// subsystem decodes the calls in a response. It returns an error if spdk_tgt could not load them.
func subsystem(name string, text json.RawMessage, release rpcschema.Release) (Subsystem, error) {
	s := Subsystem{Name: name}
	if first := bytes.TrimLeft(text, " \t\r\n"); len(first) == 0 || first[0] != '[' && string(bytes.TrimSpace(text)) != "null" {
		return s, fmt.Errorf("framework_get_config of %s: the response is neither a list nor null", name)
	}
	if err := json.Unmarshal(text, &s.Calls); err != nil {
		return s, fmt.Errorf("framework_get_config of %s: %w", name, withoutValues(err))
	}
	for _, call := range s.Calls {
		if _, err := entryOf(call); err != nil {
			return s, fmt.Errorf("framework_get_config of %s: %w", name, err)
		}
	}
	s.correct(release)
	return s, nil
}
