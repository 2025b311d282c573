package heal

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/witness"
)

// Failed writes are retried again only if the last retry was 30 s ago.
func TestErrorLongAfterARetryIsRetried(t *testing.T) {
	for pass, want := range map[time.Duration]string{29 * time.Second: "drop", 30 * time.Second: "retry"} {
		f := staged(t)
		f.status.Failed = setB
		require.Equal(t, []string{"retry"}, f.round(t, time.Second))
		f.status.Failed = 0
		require.Empty(t, f.round(t, 0))
		f.status.Failed = setB
		assert.Equal(t, want, f.round(t, pass)[0], pass)
	}
}

// The progress of a rebuild is read every 5 s. The next step follows a finished one immediately.
func TestRebuildIsReadEveryFiveSeconds(t *testing.T) {
	f := staged(t)
	f.status = mirror.Status{Members: setA, Missing: setB}
	require.Equal(t, []string{"add"}, f.round(t, 0))
	require.Equal(t, []string{"complete"}, f.round(t, 0))
	assert.Empty(t, f.round(t, 5*time.Second-1))
	assert.Equal(t, []string{"complete"}, f.round(t, 1))
}

// A failed Unstage ends the healing, because the mirror may be stopped.
func TestMirrorIsNotHealedAfterAFailedUnstage(t *testing.T) {
	f := staged(t)
	f.fail["stop"] = mirror.ErrBusy
	require.ErrorIs(t, f.Unstage(t.Context(), testVolume), mirror.ErrBusy)
	f.after()
	f.status.Failed = setB
	assert.Empty(t, f.round(t, time.Minute))
}

type lostMirror struct{ *fake }

func (lostMirror) Local() (mirror.Local, error) { return mirror.Local{}, mirror.ErrRefused }

func TestMirrorThatEndsDuringTheStageIsReported(t *testing.T) {
	f := newFake(t)
	f.NewMirror = func(mirror.Volume, mirror.Options) (Mirror, error) { return lostMirror{f}, nil }
	_, err := f.Stage(t.Context(), testVolume)
	require.ErrorIs(t, err, mirror.ErrRefused)
	f.after()
	assert.Empty(t, f.round(t, time.Minute), "it is not staged")
}

// A witness counts only if it belongs to the volume's own object.
func TestWitnessOfAnotherObjectIsRefused(t *testing.T) {
	f := staged(t)
	w := f.options.Witness
	read, err := w.Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, f.record.Witness, read)
	changed, err := w.Change(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, f.record.Witness, changed)
	f.record.UID = "another"
	_, err = w.Read(t.Context())
	require.ErrorIs(t, err, witness.ErrReplaced)
	require.ErrorContains(t, err, "its UID is another, not uid")
	f.noAPI = true
	_, err = w.Read(t.Context())
	require.ErrorContains(t, err, "no API server")
	require.NotErrorIs(t, err, witness.ErrReplaced, "the record was not read")
}

func TestPublicationEndsOnlyByADecision(t *testing.T) {
	decision := func(r replica.Reason) error {
		return &mirror.DecisionError{Decision: replica.Decision{Action: replica.Refuse, Reason: r}}
	}
	for _, err := range []error{replica.ErrFenced, witness.ErrNotFound, witness.ErrReplaced, decision(replica.Fenced)} {
		assert.True(t, publicationIsOver(err), err)
		assert.True(t, publicationIsOver(errors.Join(errors.New("step"), err)), err)
	}
	for _, err := range []error{mirror.ErrBusy, mirror.ErrUnreachable, mirror.ErrRefused, witness.ErrUnknown, witness.ErrOlder, decision(replica.Fenced + 1), decision(replica.Fenced - 1)} {
		assert.False(t, publicationIsOver(err), err)
	}
}

func TestLockInAMissingDirectoryIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "lock")
	lock := NewNodeLock(path)
	for range 2 {
		require.ErrorContains(t, lock.Acquire(), path)
	}
}
