package spdktest

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// BenchmarkCall measures the target's own time per call. The client does as little as possible, and
// waits for each response.
func BenchmarkCall(b *testing.B) {
	for name, body := range map[string]string{
		"version": `{"jsonrpc":"2.0","id":1,"method":"spdk_get_version"}`,
		"bdev":    `{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":{"name":"n7"}}`,
		"error":   `{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":{"name":"nobody"}}`,
		"bdevs":   `{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs"}`, // lists one hundred bdevs
	} {
		for _, release := range []string{"v24.01", "v26.05"} {
			b.Run(name+"/"+release, func(b *testing.B) {
				target, err := Start(Options{Release: rpcschema.MustRelease(release)})
				require.NoError(b, err)
				defer target.Close()
				client := spdkrpc.NewSocket(target.Socket())
				defer client.Close()
				for i := range 100 {
					require.NoError(b, client.Call(b.Context(), "bdev_null_create", p{"name": fmt.Sprintf("n%d", i), "num_blocks": 10, "block_size": 512}, nil))
				}
				conn, err := net.Dial("unix", target.Socket())
				require.NoError(b, err)
				defer conn.Close()
				buf := make([]byte, 1<<20)
				for b.Loop() {
					_, err := conn.Write([]byte(body))
					require.NoError(b, err)
					for {
						n, err := conn.Read(buf)
						require.NoError(b, err)
						if buf[n-1] == '\n' {
							break
						}
					}
				}
			})
		}
	}
}
