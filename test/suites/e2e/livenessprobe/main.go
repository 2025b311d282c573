// Command livenessprobe replaces the sidecar with this name, whose module may not be available from
// the Go module proxy. It has the same flags, and serves /healthz by calling the driver's Probe.
// Use this livenessprobe only in these tests.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	socket := flag.String("csi-address", "/run/csi/socket", "path of the driver's socket")
	listen := flag.String("http-endpoint", "", "address for /healthz")
	timeout := flag.Duration("probe-timeout", time.Second, "limit for one call")
	_ = flag.Int("v", 0, "accepted as in the sidecar")
	flag.Parse()
	if err := serve(*socket, *listen, *timeout); err != nil {
		log.Fatal(err)
	}
}

func serve(socket, listen string, timeout time.Duration) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	identity := csi.NewIdentityClient(conn)
	http.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		reply, err := identity.Probe(ctx, &csi.ProbeRequest{})
		if err == nil && reply.GetReady() != nil && !reply.GetReady().GetValue() {
			err = errors.New("the driver is not ready")
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return http.ListenAndServe(listen, nil) //nolint:gosec // for tests
}
