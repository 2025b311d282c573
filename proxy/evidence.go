package proxy

import (
	"net/http"
	"net/netip"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/authn"
)

// crossOrigin knows what web pages of other sites have a browser send. Browsers add
// a password or certificate that they know by themselves, and since no Content-Type
// is asked for, they would not ask before. Other clients send none of its headers.
var crossOrigin = http.NewCrossOriginProtection()

// evidenceOf is all that a request says about who sends it.
func evidenceOf(r *http.Request, source netip.AddrPort) authn.Evidence {
	e := authn.Evidence{Authorization: r.Header["Authorization"], Source: source.Addr()}
	if r.TLS != nil {
		e.Certificates = r.TLS.PeerCertificates
	}
	return e
}

// authenticated notes who sent a request, and what an answer to nobody names as
// ways to be somebody.
func (x *exchange) authenticated(by *authn.Authenticator, who authn.Identity, err error) {
	x.user, x.auth, x.credential = who.User, string(who.Method), who.Credential
	if err != nil {
		x.decision = auditlog.Unauthenticated
	}
	// Clients of rpc_http_proxy.py look for Basic, and some only at the first.
	x.challenges = []string{`Basic realm="spdk-proxy", charset="UTF-8"`}
	if by.TakesBearer() {
		x.challenges = append(x.challenges, `Bearer realm="spdk-proxy"`)
	}
}
