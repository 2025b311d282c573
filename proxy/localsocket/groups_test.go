package localsocket

import (
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// With a directory service, a user can belong to many groups, and access can depend on the last of
// them.
func TestAllGroupsOfAPeerAreRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to set groups")
	}
	for _, n := range []int{1, 31, 32, 33, 64, 1000, maxGroups} {
		want := make([]uint32, n)
		for i := range want {
			want[i] = uint32(1000 + i)
		}
		var got []uint32
		var failed error
		done := make(chan struct{})
		// run on a separate thread, which ends with the goroutine because it stays locked
		go func() {
			defer close(done)
			runtime.LockOSThread()
			if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(n), uintptr(unsafe.Pointer(&want[0])), 0); errno != 0 {
				failed = errno
				return
			}
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				failed = err
				return
			}
			got, failed = peerGroups(pair[0])
			_, _ = unix.Close(pair[0]), unix.Close(pair[1])
		}()
		<-done
		require.NoError(t, failed, n)
		assert.Equal(t, want, got, n)
	}
	_, err := peerGroups(-1)
	require.ErrorIs(t, err, unix.EBADF)
}
