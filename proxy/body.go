package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// announced is how long a request's body may be, before it is read.
func announced(r *http.Request, limit int) int {
	if r.ContentLength < 0 {
		return limit
	}
	return int(min(r.ContentLength, int64(limit)))
}

// readBody reads a request's body of at most limit bytes, of known length or
// chunked, within the time bound.
func readBody(w http.ResponseWriter, r *http.Request, limit int, bound time.Duration) ([]byte, error) {
	if r.ContentLength > int64(limit) {
		return nil, &http.MaxBytesError{Limit: int64(limit)}
	}
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(bound))
	body, err := readAll(http.MaxBytesReader(netHTTP(w), r.Body, int64(limit)), r.ContentLength)
	if err == nil {
		// Otherwise it would end the wait for SPDK's answer, too, for the server
		// reads on to see whether the client leaves.
		_ = conn.SetReadDeadline(time.Time{})
	}
	var tooLong *http.MaxBytesError
	var network net.Error
	switch {
	case err == nil, errors.As(err, &tooLong):
		return body, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errSlowBody
	case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network):
		return nil, fmt.Errorf("%w: %w", errGone, err)
	default: // such as chunks that are none
		return nil, jsonrpc.Errorf(jsonrpc.CodeParseError, "the request's body cannot be read: send it with Content-Length, or rightly chunked")
	}
}

func readAll(r io.Reader, length int64) ([]byte, error) {
	if length < 0 {
		return io.ReadAll(r)
	}
	// What was announced takes memory only when it comes.
	body := make([]byte, 0, min(length, 4<<10))
	for int64(len(body)) < length {
		if len(body) == cap(body) {
			body = slices.Grow(body, int(min(int64(len(body)), length-int64(len(body)))))
		}
		n, err := r.Read(body[len(body):min(int64(cap(body)), length)])
		body = body[:len(body)+n]
		if err != nil && int64(len(body)) < length {
			return nil, err
		}
	}
	return body, nil
}
