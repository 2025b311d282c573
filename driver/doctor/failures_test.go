package doctor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// through returns a service whose calls can be made to fail.
func (f *fixture) through(t *testing.T) (*volume.Service, *drivertest.FaultyCaller) {
	t.Helper()
	socket := spdkrpc.NewSocket(f.socket)
	t.Cleanup(func() { assert.NoError(t, socket.Close()) })
	faulty := &drivertest.FaultyCaller{Caller: &drivertest.KeyPlacer{Caller: socket, Dir: f.keys, Info: func() *spdkrpc.ProxyTargetInfo { return f.info }}}
	return volume.NewTarget(f.Config).Service(spdkrpc.NewClient(faulty)), faulty
}

// If a call to a target fails, doctor reports the target as unreachable, and reports no false
// findings.
func TestFailedReadIsReported(t *testing.T) {
	simulatedOnly(t)
	for _, w := range wrongs {
		t.Run(w.name, func(t *testing.T) {
			over := export.TCP
			if w.over != "" {
				over = w.over
			}
			f := newFixture(t, over)
			f.healthy(t)
			w.make(t, f)
			s, faulty := f.through(t)
			once := func() (kinds []doctor.Kind) {
				e := with(examinationOf(s), (&cluster{}).known(t))
				e.Wait = nil // only one reading
				for _, x := range run(t, e) {
					kinds = append(kinds, x.Kind)
				}
				return kinds
			}
			require.Contains(t, once(), w.kind)
			faulty.Reset()
			want := once()
			for n := range faulty.Calls() {
				faulty.FailCall(n+1, false, true)
				got := once()
				assert.Contains(t, got, doctor.Unreachable, "call %d, %s", n+1, faulty.FailedMethod())
				assert.Subset(t, append(want, doctor.Unreachable), got, "call %d, %s", n+1, faulty.FailedMethod())
			}
			faulty.Reset()
			assert.Equal(t, want, once())
		})
	}
}

// A repair reports success only if it has removed the object, and it can be repeated.
func TestRepairRecoversFromFailureOfAnyCall(t *testing.T) {
	simulatedOnly(t)
	for _, w := range wrongs {
		t.Run(w.name, func(t *testing.T) {
			over := export.TCP
			if w.over != "" {
				over = w.over
			}
			repairs := false
			for n, more := 1, true; more; n++ {
				f := newFixture(t, over)
				if repairs = len(w.make(t, f)) > 0; !repairs {
					return
				}
				s, faulty := f.through(t)
				found := run(t, examinationOf(s))
				require.NotEmpty(t, found)
				faulty.FailCall(n, false, true)
				err := found[0].Apply(t.Context())
				where := fmt.Sprintf("call %d, %s", n, faulty.FailedMethod())
				more = faulty.FailedMethod() != ""
				faulty.Reset()
				left := run(t, examinationOf(s))
				if err == nil {
					assert.Empty(t, left, where)
				} else {
					require.True(t, more, "%s: %v", where, err)
				}
				for _, x := range left {
					require.NoError(t, x.Apply(t.Context()), where)
				}
				assert.Empty(t, run(t, examinationOf(s)), where)
			}
		})
	}
}
