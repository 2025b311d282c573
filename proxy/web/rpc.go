package web

import (
	"net/http"

	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// serveRPC serves a request with one JSON-RPC call or a batch.
func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r, endpoint{
		read: s.readCalls,
		refused: func(v *Visit, err error) {
			v.X.NoteCalls(nil, false, err)
		},
		answer: func(v *Visit) {
			if s.Messages != nil && !v.X.Sender.Unauthenticated {
				v.W.Header()[streamHeader] = offered
			}
			reply(v.W, v.X)
		},
	})
}

// streamHeader is the response header that offers streams to authenticated clients.
const streamHeader = "Spdkgate-Stream"

var offered = []string{StreamPath}

// readCalls reads the body of a request, and decodes it strictly.
func (s *Server) readCalls(v *Visit) error {
	if err := s.Gate.Reserve(v.X, gate.DecodedSize*declaredLength(v.R, v.current.MaxBody)); err != nil {
		return err
	}
	body, err := v.ReadBody(v.current.MaxBody)
	if err != nil {
		return err
	}
	s.Gate.KeepReserved(v.X, gate.DecodedSize*len(body))
	elements, batch, err := jsonrpc.DecodeMessage(body, jsonrpc.LimitsV2605)
	if err != nil {
		return err
	}
	v.X.NoteCalls(elements, batch, nil)
	return nil
}
