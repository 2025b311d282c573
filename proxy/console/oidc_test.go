package console

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/web"
)

// A request from a browser that did not begin the sign-in counts as unauthenticated, so the audit
// log merges such requests.
func TestCallbackWithoutSignInIsRefused(t *testing.T) {
	for name, cookies := range map[string][]string{"no ticket": nil, "two tickets": {"a", "b"}} {
		r := httptest.NewRequest("GET", "/console/oidc/callback?code=x&state=y", nil)
		for _, c := range cookies {
			r.Header.Add("Cookie", flowCookie+"="+c)
		}
		v := &web.Visit{R: r, X: &gate.Exchange{}}
		require.ErrorIs(t, (&Server{}).identifyCode(v), flowNotBegun, name)
		assert.True(t, v.X.Sender.Unauthenticated, name)
	}
}
