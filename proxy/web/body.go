package web

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// declaredLength returns the declared length of a request's body, or limit if the client did not
// declare one.
func declaredLength(r *http.Request, limit int) int {
	if r.ContentLength < 0 {
		return limit
	}
	return int(min(r.ContentLength, int64(limit)))
}

// ReadBody reads the request's body of at most limit bytes, chunked or not.
func (v *Visit) ReadBody(limit int) ([]byte, error) {
	body, err := readBody(v.W, v.R, limit, v.current.Read)
	v.bodyRead = err == nil
	return body, err
}

// readBody reads a request's body of at most limit bytes, chunked or not, within timeout.
func readBody(w http.ResponseWriter, r *http.Request, limit int, timeout time.Duration) ([]byte, error) {
	if r.ContentLength > int64(limit) {
		return nil, &http.MaxBytesError{Limit: int64(limit)}
	}
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(timeout))
	body, err := readAll(http.MaxBytesReader(netHTTP(w), r.Body, int64(limit)), r.ContentLength)
	if err == nil {
		// The server keeps reading in order to notice when the client disconnects. If the deadline
		// passed while SPDK was still working, the server would assume that the client had
		// disconnected.
		_ = conn.SetReadDeadline(time.Time{})
	}
	var tooLong *http.MaxBytesError
	var network net.Error
	switch {
	case err == nil, errors.As(err, &tooLong):
		return body, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, gate.ErrSlowBody
	case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network):
		return nil, fmt.Errorf("%w: %w", gate.ErrGone, err)
	default: // for example, a malformed chunk
		return nil, jsonrpc.Errorf(jsonrpc.CodeParseError, "the request's body cannot be read: send it with Content-Length, or in valid chunks")
	}
}

func readAll(r io.Reader, length int64) ([]byte, error) {
	if length < 0 {
		return io.ReadAll(r)
	}
	// Start small, so that a client that declares a long body but sends nothing uses no memory.
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
