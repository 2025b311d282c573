package proxy

import (
	"context"
	"net"
	"net/http"
)

type connKey struct{}

// withConn lets connOf know a request's connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func connOf(r *http.Request) net.Conn {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	return c
}
