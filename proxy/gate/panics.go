package gate

import (
	"log/slog"
	"net/http"
	"runtime/debug"
)

// A panic is a bug in the proxy. Each panic is counted, and logged as an error with its stack. It
// ends only the call or request in which it occurs. net/http also recovers from panics, but in this
// program its messages are logged only at level debug.

// Panicked logs and counts a panic. id identifies the request or, outside requests, the code that
// panicked.
func (g *Gate) Panicked(id string, value any) {
	g.Metrics.Panicked()
	g.Log.Error("panic", slog.String("request_id", id), slog.Any("panic", value), slog.String("stack", string(debug.Stack())))
}

// recoverFrom turns a panic during a call into that call's error. It must be deferred.
func (g *Gate) recoverFrom(x *Exchange, err *error) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	g.Panicked(x.ID, p)
	*err = ErrPanic
}

// Contain runs f and logs a panic in it. It is meant for code that does not serve a client.
func (g *Gate) Contain(where string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			g.Panicked(where, p)
		}
	}()
	f()
}

// Guard runs part of a request, and turns a panic in it into the request's error.
func (g *Gate) Guard(x *Exchange, f func() error) (err error) {
	defer g.recoverFrom(x, &err)
	return f()
}
