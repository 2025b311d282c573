package proxy

import (
	"net/http"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/authn"
)

// crossOrigin detects requests that a web page of another site made a browser send. The
// browser adds a password or certificate that it has stored, and since the proxy requires
// no Content-Type, it does not ask for permission first. Other clients send none of the
// headers that are checked.
var crossOrigin = http.NewCrossOriginProtection()

// credentialsFrom collects everything in a request that identifies its sender.
func credentialsFrom(r *http.Request, source auditlog.Source) authn.Evidence {
	e := authn.Evidence{Authorization: r.Header["Authorization"], Source: source.Address.Addr()}
	if r.TLS != nil {
		e.Certificates = r.TLS.PeerCertificates
	}
	return e
}

// noteSender notes who sent a request, and the authentication schemes that a refusal lists.
func (x *exchange) noteSender(by *authn.Authenticator, who authn.Identity, err error) {
	x.sender = sender{user: who.User, unauthenticated: err != nil, auth: string(who.Method), credential: who.Credential}
	// Basic comes first: clients of rpc_http_proxy.py look for it, and some look only at
	// the first header.
	x.sender.challenges = []string{`Basic realm="spdk-proxy", charset="UTF-8"`}
	if by.TakesBearer() {
		x.sender.challenges = append(x.sender.challenges, `Bearer realm="spdk-proxy"`)
	}
}
