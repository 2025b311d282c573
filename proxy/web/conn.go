package web

import (
	"context"
	"net"
	"net/http"
)

type connKey struct{}

// WithConn adds a connection to the context of its requests, for connOf.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of a request, or nil if it is unknown.
func connOf(r *http.Request) net.Conn {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	return c
}
