package authntest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
)

// A flow is the state of the authorization code flow at an Issuer.
type flow struct {
	client, secret string // credentials of the registered client
	subject        string // the user who signs in
	more           map[string]any
	answer         string                // response of /token; "" means that it returns a token
	codes          map[string]url.Values // the requests to /authorize, keyed by code
	exchanges      int
}

// Register registers a client. /authorize signs in the user with this subject without a prompt.
// more replaces claims in the tokens; a nil value removes the claim.
func (i *Issuer) Register(client, secret, subject string, more map[string]any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.flow = flow{client: client, secret: secret, subject: subject, more: more, codes: map[string]url.Values{}}
}

// AnswerExchanges makes /token respond with this text and status 400. If the text is empty, /token
// works normally.
func (i *Issuer) AnswerExchanges(text string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.flow.answer = text
}

// Exchanges returns the number of token requests.
func (i *Issuer) Exchanges() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.flow.exchanges
}

// authorize sends the browser back with a code.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	i.mu.Lock()
	defer i.mu.Unlock()
	if q.Get("client_id") != i.flow.client || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("nonce") == "" {
		http.Error(w, "this request is not one of the code flow with PKCE and a nonce", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	i.flow.codes[code] = q
	back := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {i.URL}}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// token exchanges a code for a token. Each code can be used once.
func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	client, secret, _ := r.BasicAuth()
	secret, _ = url.QueryUnescape(secret) // RFC 6749, section 2.3.1
	if client == "" {
		client, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	i.mu.Lock()
	i.flow.exchanges++
	asked, known := i.flow.codes[r.PostFormValue("code")]
	delete(i.flow.codes, r.PostFormValue("code"))
	registered, answer, away := i.flow, i.flow.answer, i.away
	i.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	refuse := func(code string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": code})
	}
	switch {
	case away:
		http.Error(w, "away", http.StatusServiceUnavailable)
	case answer != "":
		http.Error(w, answer, http.StatusBadRequest)
	case client != registered.client || secret != registered.secret:
		refuse("invalid_client")
	case !known, asked.Get("redirect_uri") != r.PostFormValue("redirect_uri"),
		asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]):
		refuse("invalid_grant")
	default:
		more := map[string]any{"nonce": asked.Get("nonce")}
		for name, value := range registered.more {
			more[name] = value
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 300, "id_token": i.Token(registered.client, registered.subject, more),
		})
	}
}
