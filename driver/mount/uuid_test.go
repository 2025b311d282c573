package mount

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/operation"
)

const (
	oldUUID = "11111111-2222-4333-8444-555555555555"
	newUUID = "abcdefab-2222-4333-8444-555555555555"
)

// changeUUIDWith runs ensureUUID with fake tools. Successive runs of blkid report the elements of
// uuids. failing is the number of the tool run that fails, counted from 1.
func changeUUIDWith(ctx context.Context, t *testing.T, s Stage, uuids []string, failing int, mountable bool) (ran []string, mounts int, err error) {
	t.Helper()
	m, table := fakeMounts(t, line("259:2", "/", "/other", "rw", "xfs", "/dev/nvme0n2", "rw"))
	s.Device, s.Path = "/dev/nvme0n1", filepath.Join(t.TempDir(), "stage")
	fake := &fakeExec{}
	fake.answer = func(args []string) ([]byte, error) {
		switch {
		case len(fake.ran) == failing:
			return nil, io.ErrUnexpectedEOF
		case args[0] == "blkid" && len(uuids) == 0:
			return exits(2, "")(args)
		case args[0] == "blkid":
			next := uuids[0]
			uuids = uuids[1:]
			return []byte(next + "\n"), nil
		}
		return []byte("said the tool"), nil
	}
	m.exec, m.mount = fake, tableMount{}
	if mountable {
		m.mount = tableMount{table: table, line: func(target string, _ []string) string {
			mounts++
			return line("259:1", "/", target, "rw", s.FSType, s.Device, "rw")
		}}
	}
	err = m.ensureUUID(ctx, &s, new(operation.Step))
	assert.Equal(t, 1, table.lines(), "it is mounted only to replay its log")
	for _, command := range fake.ran {
		name, _, _ := strings.Cut(command, " ")
		ran = append(ran, name)
	}
	return ran, mounts, err
}

func TestUUIDIsChangedAndReadBack(t *testing.T) {
	for name, c := range map[string]struct {
		stage  Stage
		uuids  []string
		ran    []string
		mounts int
		kind   error
	}{
		"none requested":    {stage: Stage{FSType: xfs}},
		"ext4":              {stage: Stage{FSType: ext4, UUID: newUUID}},
		"read-only":         {stage: Stage{FSType: xfs, UUID: newUUID, ReadOnly: true}},
		"same":              {Stage{FSType: xfs, UUID: newUUID}, []string{strings.ToUpper(newUUID)}, []string{"blkid"}, 0, nil},
		"unreadable":        {Stage{FSType: xfs, UUID: newUUID}, nil, []string{"blkid"}, 0, ErrUnreadable},
		"xfs":               {Stage{FSType: xfs, UUID: newUUID}, []string{oldUUID, newUUID}, []string{"blkid", "xfs_db", "blkid"}, 0, nil},
		"xfs with a log":    {Stage{FSType: xfs, UUID: newUUID}, []string{oldUUID, oldUUID, newUUID}, []string{"blkid", "xfs_db", "blkid", "xfs_db", "blkid"}, 1, nil},
		"xfs not changed":   {Stage{FSType: xfs, UUID: newUUID}, []string{oldUUID, oldUUID, oldUUID}, []string{"blkid", "xfs_db", "blkid", "xfs_db", "blkid"}, 1, ErrDamaged},
		"btrfs":             {Stage{FSType: btrfs, UUID: newUUID}, []string{oldUUID, newUUID}, []string{"blkid", "btrfstune", "blkid"}, 0, nil},
		"btrfs not changed": {Stage{FSType: btrfs, UUID: newUUID}, []string{oldUUID, oldUUID}, []string{"blkid", "btrfstune", "blkid"}, 0, ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			ran, mounts, err := changeUUIDWith(t.Context(), t, c.stage, c.uuids, 0, true)
			require.ErrorIs(t, err, c.kind)
			if c.kind == ErrDamaged {
				require.ErrorContains(t, err, "said the tool")
			}
			assert.Equal(t, c.ran, ran)
			assert.Equal(t, c.mounts, mounts)
		})
	}
}

// If a step of changing a UUID fails, the remaining steps are not run.
func TestFailedStepEndsTheChangeOfAUUID(t *testing.T) {
	s, uuids := Stage{FSType: xfs, UUID: newUUID}, []string{oldUUID, oldUUID, newUUID}
	for failing := 1; failing <= 5; failing++ {
		ran, _, err := changeUUIDWith(t.Context(), t, s, uuids, failing, true)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Len(t, ran, failing)
	}
	ran, _, err := changeUUIDWith(t.Context(), t, s, uuids, 0, false)
	require.ErrorIs(t, err, errMount)
	assert.Len(t, ran, 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ran, mounts, err := changeUUIDWith(ctx, t, s, uuids, 0, true)
	require.ErrorIs(t, err, context.Canceled, "replaying the log may take long")
	assert.Len(t, ran, 3)
	assert.Zero(t, mounts)
}
