package target

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// While calls start, end, wait and are canceled, and limits change, no slot is lost or granted
// twice, and every call that waits long enough gets a slot.
func TestQueueLosesNoSlotUnderStress(t *testing.T) {
	const users, callers, rounds = 7, 12, 300
	limits := Limits{Total: 9, PerUser: 4, Of: map[string]int{"0": 1, "1": 9}}
	q := newQueue(limits)
	var underway [users]atomic.Int32
	var total, served, refused, left atomic.Int32
	var all sync.WaitGroup
	for who := range users {
		for caller := range callers {
			random := rand.New(rand.NewPCG(uint64(who), uint64(caller)))
			all.Go(func() {
				for range rounds {
					ctx, cancel := context.WithCancel(context.Background())
					patience := long
					switch random.IntN(4) {
					case 0:
						go cancel()
					case 1:
						patience = time.Duration(random.IntN(200)) * time.Microsecond
					}
					u, err := q.acquire(ctx, fmt.Sprint(who), new(size), patience)
					cancel()
					switch {
					case err == nil:
						assert.LessOrEqual(t, underway[who].Add(1), int32(limits.of(fmt.Sprint(who))))
						assert.LessOrEqual(t, total.Add(1), int32(limits.Total))
						served.Add(1)
						if random.IntN(3) == 0 {
							time.Sleep(time.Duration(random.IntN(50)) * time.Microsecond)
						}
						total.Add(-1)
						underway[who].Add(-1)
						q.release(u)
					case ctx.Err() != nil:
						left.Add(1)
					default:
						assert.ErrorAs(t, err, new(*BusyError))
						refused.Add(1)
					}
					if random.IntN(50) == 0 {
						q.setLimits(limits)
						q.sound(t)
					}
				}
			})
		}
	}
	all.Wait() // returns only if no user starves
	assert.Equal(t, Load{}, q.load())
	assert.EqualValues(t, users*callers*rounds, served.Load()+refused.Load()+left.Load())
	t.Logf("%d served, %d refused, %d left", served.Load(), refused.Load(), left.Load())
	q.sound(t)
	for range 4 {
		mustTake(t, q, "2")
	}
}

// A user who makes one call at a time waits for at most one call of each other user, plus one,
// however many calls the others have waiting. The test counts slots instead of measuring time.
func TestManyCallsDoNotDelayOtherUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Limits{Total: 8, PerUser: 6})
		got := make(chan slot, 100)
		floods := []string{"x", "y", "z"}
		var held []slot
		flood := func(who string) {
			go func() {
				if u, err := q.acquire(context.Background(), who, new(size), time.Hour); err == nil {
					got <- u
				}
			}()
		}
		collect := func() (modest *slot) {
			synctest.Wait()
			for {
				select {
				case u := <-got:
					if u.name == "modest" {
						modest = &u
						continue
					}
					held = append(held, u)
					flood(u.name) // and one more
					synctest.Wait()
				default:
					return modest
				}
			}
		}
		for range 8 {
			for _, who := range floods {
				flood(who)
			}
		}
		collect()
		random := rand.New(rand.NewPCG(1, 2))
		for range 200 {
			go func() {
				u, err := q.acquire(context.Background(), "modest", new(size), time.Hour)
				assert.NoError(t, err)
				got <- u
			}()
			modest, rounds := collect(), 0
			for ; modest == nil; rounds++ {
				i := random.IntN(len(held))
				q.release(held[i])
				held = append(held[:i], held[i+1:]...)
				modest = collect()
			}
			assert.LessOrEqual(t, rounds, 1+len(floods))
			q.sound(t)
			q.release(*modest)
			collect()
		}
		for q.load() != (Load{}) { // let all calls end
			q.setLimits(Limits{PerUser: 6})
			for _, u := range held {
				q.release(u)
			}
			held = nil
			synctest.Wait()
			for len(got) > 0 {
				held = append(held, <-got)
			}
		}
	})
}

func BenchmarkTake(b *testing.B) {
	answer := new(size)
	takes := func(who string) func(*testing.PB, *queue) {
		return func(p *testing.PB, q *queue) {
			for p.Next() {
				u, err := q.acquire(context.Background(), who, answer, time.Second)
				if err != nil {
					b.Error(err)
					return
				}
				q.release(u)
			}
		}
	}
	for name, users := range map[string]int{"one user": 1, "16 users": 16} {
		b.Run(name, func(b *testing.B) {
			q := newQueue(Limits{Total: 1024, PerUser: 256})
			var n atomic.Int32
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) { takes(fmt.Sprint(int(n.Add(1))%users))(p, q) })
		})
	}
	b.Run("waiting", func(b *testing.B) {
		q := newQueue(Limits{Total: 8, PerUser: 4})
		var n atomic.Int32
		b.SetParallelism(16)
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) { takes(fmt.Sprint(int(n.Add(1))%8))(p, q) })
	})
}
