package web

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/targetmetrics"
)

// writeDocument writes the OpenRPC document, for tools that fetch it.
func writeDocument(v *Visit, document any) {
	v.W.Header().Set("Content-Type", "application/json")
	_, _ = v.W.Write(document.(json.RawMessage))
}

func writeMetrics(v *Visit, text any) {
	v.W.Header().Set("Content-Type", metrics.ContentType)
	_, _ = io.WriteString(v.W, text.(string))
}

func writeTargetMetrics(v *Visit, text any) { WriteText(v.W, v.R, text.(*targetmetrics.Text)) }

// WriteText writes the target's metrics, compressed if the client accepts gzip.
func WriteText(w http.ResponseWriter, r *http.Request, t *targetmetrics.Text) {
	body, h := t.Plain, w.Header()
	h.Set("Content-Type", targetmetrics.ContentType)
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = t.Gzipped()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}
