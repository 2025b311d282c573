package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A tracer stops a plugin's processes at each system call that changes something. The plugin needs
// no code for this, because a seccomp filter notifies this process of the call. The notified
// process then continues the call, or kills the process that made it. seccomp_unotify(2) describes
// the interface.
type tracer struct {
	ours, theirs *os.File // ends of the UNIX socket that passes the filter's descriptor
	listener     int
	plugin       int // process id
	ended        chan error

	mu      sync.Mutex
	handle  func(point) kill // if nil, all calls continue
	orphans []int            // processes whose parent has ended
}

// A point is a system call that is about to be made.
type point struct {
	process string // name of the program
	call    string
	path    string
}

func (p point) String() string { return p.process + ": " + strings.TrimSpace(p.call+" "+p.path) }

// A kill specifies which processes are killed at a point.
type kill int

const (
	nothing kill = iota
	everything
	pluginOnly // the tools that it runs continue
)

// launch is the name of the command that installs the filter and executes the plugin. Its standard
// input is unused; descriptor 3 is the socket.
const launch = "launch"

// newTracer makes cmd start the program in args under the seccomp filter.
func newTracer(cmd *exec.Cmd, args []string) (*tracer, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	t := &tracer{ours: os.NewFile(uintptr(pair[0]), "ours"), theirs: os.NewFile(uintptr(pair[1]), "theirs"), ended: make(chan error, 1)}
	cmd.Path, cmd.Args = "/init", append([]string{"/init", launch}, args...)
	cmd.ExtraFiles = []*os.File{t.theirs}
	return t, nil
}

// attach receives the filter's descriptor from the started process, and starts to handle its
// notifications.
func (t *tracer) attach(pid int) error {
	defer t.ours.Close()
	if err := t.theirs.Close(); err != nil {
		return err
	}
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(t.ours.Fd()), b, oob, 0)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("no filter: %w", err)
	}
	descriptors, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	t.listener, t.plugin = descriptors[0], pid
	go func() { t.ended <- t.run() }()
	return nil
}

// onPoint sets the function that is called at each point from now on.
func (t *tracer) onPoint(handle func(point) kill) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handle = handle
}

// end waits until all processes with the filter have ended. The plugin itself must already have
// ended.
func (t *tracer) end() error {
	t.mu.Lock()
	orphans := t.orphans
	t.mu.Unlock()
	for _, pid := range orphans {
		_, _ = unix.Wait4(pid, nil, 0, nil) // as children of init, which is this process
	}
	return errors.Join(<-t.ended, unix.Close(t.listener))
}

// These structures and commands are from linux/seccomp.h.
type seccompNotification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type seccompResponse struct {
	id    uint64
	val   int64
	error int32
	flags uint32
}

const (
	notificationReceive  = 0xc0502100
	notificationSend     = 0xc0182101
	notificationContinue = 1
	filterNewListener    = 1 << 3
	filterWaitKillable   = 1 << 5 // a signal does not repeat the notification
)

func (t *tracer) run() error {
	for {
		fds := []unix.PollFd{{Fd: int32(t.listener), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case fds[0].Revents&unix.POLLIN == 0:
			return nil // the filter is no longer used by any process
		}
		var n seccompNotification
		if errno := ioctl(t.listener, notificationReceive, unsafe.Pointer(&n)); errno == unix.ENOENT || errno == unix.EINTR {
			continue // the process was killed
		} else if errno != 0 {
			return fmt.Errorf("receive a notification: %w", errno)
		}
		if t.killedAt(n) {
			continue
		}
		r := seccompResponse{id: n.id, flags: notificationContinue}
		if errno := ioctl(t.listener, notificationSend, unsafe.Pointer(&r)); errno != 0 && errno != unix.ENOENT {
			return fmt.Errorf("continue a system call: %w", errno)
		}
	}
}

// killedAt reports whether the process that made the system call was killed.
func (t *tracer) killedAt(n seccompNotification) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.handle == nil {
		return false
	}
	p, relevant := describe(n)
	if !relevant {
		return false
	}
	action := t.handle(p)
	if action == nothing {
		return false
	}
	t.handle = nil
	t.orphans = descendants(t.plugin)
	victims := []int{t.plugin}
	if action == everything {
		victims = append(victims, t.orphans...)
	}
	for _, pid := range victims {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return action == everything || processOf(n.pid) == t.plugin
}

func ioctl(fd int, command uint, arg unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(command), uintptr(arg))
	return errno
}

// traced lists the system calls that the filter reports, with the argument that names a file, by
// path or by descriptor.
var traced = map[int32]struct {
	name       string
	path, file int // index of the argument, or -1
}{
	unix.SYS_OPENAT:     {"open", 1, -1},
	unix.SYS_RENAMEAT:   {"rename", 3, -1},
	unix.SYS_RENAMEAT2:  {"rename", 3, -1},
	unix.SYS_RENAME:     {"rename", 1, -1},
	unix.SYS_UNLINKAT:   {"remove", 1, -1},
	unix.SYS_UNLINK:     {"remove", 0, -1},
	unix.SYS_RMDIR:      {"remove", 0, -1},
	unix.SYS_SYMLINKAT:  {"link", 2, -1},
	unix.SYS_MKDIRAT:    {"mkdir", 1, -1},
	unix.SYS_MKDIR:      {"mkdir", 0, -1},
	unix.SYS_MOUNT:      {"mount", 1, -1},
	unix.SYS_UMOUNT2:    {"umount", 0, -1},
	unix.SYS_EXECVE:     {"run", 0, -1},
	unix.SYS_FSYNC:      {"fsync", -1, 0},
	unix.SYS_FDATASYNC:  {"fsync", -1, 0},
	unix.SYS_PWRITE64:   {"write", -1, 0},
	unix.SYS_IOCTL:      {"resize", -1, 0},
	unix.SYS_EXIT_GROUP: {"end", -1, -1},
}

// resizeExt4 is EXT4_IOC_RESIZE_FS, the only traced ioctl.
const resizeExt4 = 0x40086610

// filter is a classic BPF program over struct seccomp_data.
func filter() []unix.SockFilter {
	const (
		load, jumpIfEqual, jumpIfSet, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		nr, secondArg, thirdArg           = 0, 24, 32
	)
	p := []unix.SockFilter{{Code: load, K: nr}}
	notify := func() unix.SockFilter { return unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_USER_NOTIF} }
	allow := unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW}
	for call := range traced {
		switch call {
		case unix.SYS_OPENAT: // only if it may change the file
			p = append(p, unix.SockFilter{Code: jumpIfEqual, Jf: 4, K: uint32(call)}, unix.SockFilter{Code: load, K: thirdArg},
				unix.SockFilter{Code: jumpIfSet, Jf: 1, K: unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT}, notify(), allow)
		case unix.SYS_IOCTL:
			p = append(p, unix.SockFilter{Code: jumpIfEqual, Jf: 4, K: uint32(call)}, unix.SockFilter{Code: load, K: secondArg},
				unix.SockFilter{Code: jumpIfEqual, Jf: 1, K: resizeExt4}, notify(), allow)
		default:
			p = append(p, unix.SockFilter{Code: jumpIfEqual, Jf: 1, K: uint32(call)}, notify())
		}
	}
	return append(p, allow)
}

// runTraced installs the filter, passes its descriptor to the tracer, and executes the program in
// args.
func runTraced(args []string) error {
	runtime.LockOSThread() // the filter belongs to one thread, which remains after the exec
	program := filter()
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, filterNewListener|filterWaitKillable, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return fmt.Errorf("install a seccomp filter: %w", errno)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		return err
	}
	unix.CloseOnExec(int(listener))
	unix.CloseOnExec(3)
	return unix.Exec(args[0], args, os.Environ())
}

// describe determines which object a system call would change. A call that would change nothing on
// the node is not relevant.
func describe(n seccompNotification) (p point, relevant bool) {
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", n.pid))
	call := traced[n.nr]
	p = point{process: strings.TrimSpace(string(comm)), call: call.name}
	switch {
	case call.path >= 0:
		p.path = readString(n.pid, n.args[call.path])
	case call.file >= 0:
		p.path, _ = os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, n.args[call.file]))
	}
	p.path = filepath.Clean(p.path)
	return p, p.path != "/dev/null" && !strings.HasPrefix(p.path, "/proc/") && !strings.HasPrefix(p.path, pluginLog)
}

func readString(pid uint32, at uint64) string {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return ""
	}
	defer mem.Close()
	b := make([]byte, 512)
	n, _ := mem.ReadAt(b, int64(at))
	text, _, _ := strings.Cut(string(b[:n]), "\x00")
	return text
}

// processOf returns a thread's process.
func processOf(thread uint32) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "Tgid:"); ok {
			pid, _ := strconv.Atoi(strings.TrimSpace(value))
			return pid
		}
	}
	return 0
}

// descendants returns all direct and indirect child processes of a process.
func descendants(ancestor int) []int {
	parents := make(map[int]int)
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); len(fields) > 1 {
			parents[pid], _ = strconv.Atoi(fields[1])
		}
	}
	family := []int{ancestor}
	for i := 0; i < len(family); i++ {
		for pid, parent := range parents {
			if parent == family[i] && !slices.Contains(family, pid) {
				family = append(family, pid)
			}
		}
	}
	return family[1:]
}
