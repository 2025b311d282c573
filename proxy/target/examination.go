package target

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"
)

// An Examination states which new bdevs a target process examines. SPDK loads the lvstores, RAIDs
// and partitions that it finds on an examined bdev.
type Examination string

// These are the values of an Examination.
const (
	// ExaminationUnknown means that the process has not been queried yet, or that it has not
	// responded.
	ExaminationUnknown Examination = ""
	// ExaminesAll means that the process examines every new bdev (bdev_auto_examine), including
	// logical volumes. Therefore, it loads data structures that hosts write to volumes.
	ExaminesAll Examination = "all"
	// ExaminesListed means that the process examines only bdevs that were named to it
	// (bdev_examine).
	ExaminesListed Examination = "listed"
)

const (
	configMethod  = "framework_get_config"
	optionsMethod = "bdev_set_options"
)

// configTimeout limits how long the proxy waits for the configuration with the option
// bdev_auto_examine.
const configTimeout = 10 * time.Second

// examinationRetry is how long a connection waits after a failed query before it queries the target
// again.
const examinationRetry = time.Second

func configParams() map[string]any { return map[string]any{"name": "bdev"} }

// examinationIn reads bdev_auto_examine from the configuration of subsystem bdev.
func examinationIn(config json.RawMessage) Examination {
	var calls []json.RawMessage
	if json.Unmarshal(config, &calls) != nil {
		return ExaminationUnknown
	}
	for _, call := range calls {
		var c struct {
			Method string
			Params struct {
				Auto *bool `json:"bdev_auto_examine"`
			}
		}
		if json.Unmarshal(call, &c) != nil || c.Method != optionsMethod || c.Params.Auto == nil {
			continue
		}
		if *c.Params.Auto {
			return ExaminesAll
		}
		return ExaminesListed
	}
	return ExaminationUnknown
}

// An askedExamination caches the Examination of the process at the other end of a connection. The
// option can be set only before startup has ended, so a response received at runtime remains valid
// as long as the connection lasts.
type askedExamination struct {
	asking chan struct{} // contains an element during a query; guards the fields below
	answer Examination
	failed time.Time
}

// Examination returns which bdevs the process at the other end examines. It queries the process
// once, and caches the result. If the result is ExaminationUnknown, the error, if any, is the
// reason.
func (c *Conn) Examination(ctx context.Context) (Examination, error) {
	select {
	case c.examined.asking <- struct{}{}:
		defer func() { <-c.examined.asking }()
	case <-ctx.Done():
		return ExaminationUnknown, ctx.Err()
	}
	if c.examined.answer != ExaminationUnknown || time.Since(c.examined.failed) < examinationRetry {
		return c.examined.answer, nil
	}
	config, err := c.Call(ctx, "", configMethod, configParams(), configTimeout)
	c.examined.answer = examinationIn(config)
	if c.examined.answer == ExaminationUnknown {
		c.examined.failed = time.Now()
		return ExaminationUnknown, err
	}
	if !c.broken() {
		c.target.noteExamination(c.examined.answer)
	}
	return c.examined.answer, nil
}

// examine queries the current process in the background, so that State can return the process's
// Examination.
func (t *Target) examine() {
	t.flights.DoChan("examination", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), configTimeout)
		defer cancel()
		c, err := t.Connect(ctx, "")
		if err != nil {
			return nil, err
		}
		e, err := c.Examination(ctx)
		if !c.broken() {
			t.noteExamination(e)
		}
		return nil, err
	})
}

// noteExamination records the response of a target process, and logs changes.
func (t *Target) noteExamination(e Examination) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || e == ExaminationUnknown {
		return
	}
	t.state.Examination = e
	if e == t.examination {
		return
	}
	t.examination, t.state.ExaminationSince = e, time.Now()
	if e == ExaminesAll {
		t.config.Log.Warn("target loads what hosts write into volumes: set bdev_auto_examine to false, see docs/target.md", slog.String("socket", t.config.Socket))
	} else {
		t.config.Log.Info("target does not load what hosts write into volumes", slog.String("socket", t.config.Socket))
	}
}
