package driver

import (
	"context"
	"strings"

	"google.golang.org/grpc"

	"github.com/spdkgate/spdkgate/driver/volume"
)

// interceptStream is like intercept, but for streaming calls. It neither logs nor counts calls to
// gRPC's own services, which may watch the process indefinitely.
func (c *calls) interceptStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !strings.HasPrefix(info.FullMethod, "/csi.") {
		_, err := c.recoverPanic(c.log, func() (any, error) { return nil, handler(service, stream) })
		return err
	}
	call := c.begin(stream.Context(), info.FullMethod)
	_, err := c.recoverPanic(call.log, func() (any, error) {
		return nil, handler(service, &receiving{stream, volume.AskOnce(stream.Context()), call})
	})
	return call.end(err)
}

// receiving is a stream that records its call's request.
type receiving struct {
	grpc.ServerStream
	ctx  context.Context
	call *call
}

func (r *receiving) Context() context.Context { return r.ctx }

func (r *receiving) RecvMsg(m any) error {
	err := r.ServerStream.RecvMsg(m)
	if err == nil {
		r.call.received(m)
	}
	return err
}
