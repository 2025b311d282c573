package target

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func options(auto string) string {
	return `"result":[{"method":"bdev_set_options","params":{"bdev_io_pool_size":65535,"bdev_auto_examine":` + auto + `}},{"method":"bdev_wait_for_examine"}]`
}

func TestExaminationIsReadFromTheConfiguration(t *testing.T) {
	for config, want := range map[string]Examination{
		`[{"method":"bdev_set_options","params":{"bdev_auto_examine":true}}]`:                                  ExaminesAll,
		`[{"method":"x"},[{"method":"y"}],{"method":"bdev_set_options","params":{"bdev_auto_examine":false}}]`: ExaminesListed,
		`[{"method":"bdev_set_options","params":{"bdev_io_pool_size":1}}]`:                                     ExaminationUnknown,
		`[{"method":"bdev_set_options","params":{"bdev_auto_examine":"false"}}]`:                               ExaminationUnknown,
		`[{"method":"bdev_set_option","params":{"bdev_auto_examine":false}}]`:                                  ExaminationUnknown,
		`[]`: ExaminationUnknown, `null`: ExaminationUnknown, ``: ExaminationUnknown, `{"method":"bdev_set_options"}`: ExaminationUnknown,
	} {
		assert.Equal(t, want, examinationIn([]byte(config)), config)
	}
}

func TestExaminationIsQueriedOncePerConnection(t *testing.T) {
	var asked atomic.Int32
	f := newFake(t, "v26.05", func(c call) string {
		assert.Equal(t, "framework_get_config", c.Method)
		assert.JSONEq(t, `{"name":"bdev"}`, string(c.Params))
		asked.Add(1)
		return options("true")
	})
	target := newTarget(t, Config{Socket: f.path})
	c := connect(t, target)
	for range 3 {
		e, err := c.Examination(t.Context())
		require.NoError(t, err)
		assert.Equal(t, ExaminesAll, e)
	}
	assert.EqualValues(t, 1, asked.Load())
	state := target.State()
	assert.Equal(t, ExaminesAll, state.Examination)
	assert.WithinDuration(t, time.Now(), state.ExaminationSince, long)
}

func TestUnknownExaminationIsQueriedAgain(t *testing.T) {
	answer := atomic.Pointer[string]{}
	fails, off := `"error":{"code":-32601,"message":"Method not found"}`, options("false")
	answer.Store(&fails)
	f := newFake(t, "v24.01", func(call) string { return *answer.Load() })
	c := connect(t, newTarget(t, Config{Socket: f.path}))
	e, err := c.Examination(t.Context())
	require.Error(t, err)
	assert.Equal(t, ExaminationUnknown, e)
	answer.Store(&off)
	e, err = c.Examination(t.Context())
	require.NoError(t, err)
	assert.Equal(t, ExaminationUnknown, e, "the target is not queried again at once")
	c.examined.failed = c.examined.failed.Add(-examinationRetry)
	e, err = c.Examination(t.Context())
	require.NoError(t, err)
	assert.Equal(t, ExaminesListed, e)
}

// Watch queries each new target process. The recorded time changes only if the response changes.
func TestWatchRecordsExaminationOfEachProcess(t *testing.T) {
	answer := atomic.Pointer[string]{}
	all, listed := options("true"), options("false")
	answer.Store(&all)
	f := newFake(t, "v26.05", func(call) string { return *answer.Load() })
	target := newTarget(t, Config{Socket: f.path})
	go target.Watch()
	reaches := func(e Examination) State {
		require.Eventually(t, func() bool { return target.State().Examination == e }, long, time.Millisecond)
		return target.State()
	}
	first := reaches(ExaminesAll)
	f.stop()
	reaches(ExaminationUnknown)
	f.start()
	assert.Equal(t, first.ExaminationSince, reaches(ExaminesAll).ExaminationSince)
	answer.Store(&listed)
	f.stop()
	reaches(ExaminationUnknown)
	f.start()
	assert.True(t, first.ExaminationSince.Before(reaches(ExaminesListed).ExaminationSince))
}
