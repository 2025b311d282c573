package proxy

import (
	"net/http"
	"net/netip"

	"github.com/spdkgate/spdkgate/proxy/authn"
)

// crossOrigin knows what web pages of other sites have a browser send. Browsers add
// a password or certificate that they know by themselves, and since no Content-Type
// is asked for, they would not ask before. Other clients send none of its headers.
var crossOrigin = http.NewCrossOriginProtection()

// credentialsFrom collects all that a request says about who sends it.
func credentialsFrom(r *http.Request, source netip.AddrPort) authn.Evidence {
	e := authn.Evidence{Authorization: r.Header["Authorization"], Source: source.Addr()}
	if r.TLS != nil {
		e.Certificates = r.TLS.PeerCertificates
	}
	return e
}

// noteSender notes who sent a request, and the ways to authenticate that a refusal names.
func (x *exchange) noteSender(by *authn.Authenticator, who authn.Identity, err error) {
	x.sender = sender{user: who.User, unauthenticated: err != nil, auth: string(who.Method), credential: who.Credential}
	// Clients of rpc_http_proxy.py look for Basic, and some only at the first.
	x.sender.challenges = []string{`Basic realm="spdk-proxy", charset="UTF-8"`}
	if by.TakesBearer() {
		x.sender.challenges = append(x.sender.challenges, `Bearer realm="spdk-proxy"`)
	}
}
