package authn

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAuthorizationHeadersAreParsed(t *testing.T) {
	right := map[string]authorization{
		basic("ann", "a:b"):                        {scheme: schemeBasic, name: "ann", password: "a:b"},
		"bAsIc   " + basic("", "")[len("Basic "):]: {scheme: schemeBasic},
		basic("ann", "\x00\n"):                     {scheme: schemeBasic, name: "ann", password: "\x00\n"},
		"Bearer abc":                               {scheme: schemeBearer, token: "abc"},
		"BEARER  a-b.c_d~e+f/g== ":                 {scheme: schemeBearer, token: "a-b.c_d~e+f/g=="},
	}
	for header, want := range right {
		got, err := parseAuthorization([]string{header})
		require.NoError(t, err, header)
		assert.Equal(t, want, got, header)
	}
	for name, headers := range map[string][]string{
		"two":                           {basic("ann", "a"), "Bearer abc"},
		"the same header twice":         {basic("ann", "a"), basic("ann", "a")},
		"none":                          {},
		"empty":                         {""},
		"two credentials in one header": {basic("ann", "a") + ", Bearer abc"},
		"a tab":                         {"Basic\t" + basic("ann", "a")[len("Basic "):]},
		"no space":                      {strings.ReplaceAll(basic("ann", "a"), " ", "")},
		// decodes as "ann:a" here, but may decode differently elsewhere
		"nonzero padding bits":              {"Basic YW5uOmF="},
		"no colon in the credentials":       {"Basic " + base64.StdEncoding.EncodeToString([]byte("ann"))},
		"base64 with the URL alphabet":      {"Basic -_-_"},
		"a line break":                      {"Basic YW5u\nOmE="},
		"bearer without a token":            {"Bearer"},
		"bearer with only padding":          {"Bearer =="},
		"bearer with two tokens":            {"Bearer abc def"},
		"bearer with padding in the middle": {"Bearer a=b"},
		"bearer with a comma":               {"Bearer abc,def"},
		"bearer token not in ASCII":         {"Bearer äbc"},
		"another scheme":                    {"Negotiate abc"},
	} {
		_, err := parseAuthorization(headers)
		require.ErrorIs(t, err, ErrNoCredentials, name)
	}
}

// An accepted header is unambiguous: formatting its parsed form and parsing the result again yields
// the same value.
func FuzzParseAuthorization(f *testing.F) {
	for _, seed := range []string{basic("ann", "a:b"), "Bearer abc", "basic  YTpi", "Bearer a.b.c=", "Basic", "", "Bearer " + NewToken(), "Digest x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		got, err := parseAuthorization([]string{header})
		if err != nil {
			require.ErrorIs(t, err, ErrNoCredentials)
			require.Zero(t, got)
			return
		}
		again := "Bearer " + got.token
		if got.scheme == schemeBasic {
			require.NotContains(t, got.name, ":")
			again = basic(got.name, got.password)
		}
		require.True(t, strings.HasPrefix(strings.ToLower(header), string(got.scheme)+" "))
		// The two headers may differ only in spaces and in the letter case of the scheme.
		require.Equal(t, strings.ReplaceAll(again, " ", "")[len(got.scheme):], strings.ReplaceAll(header, " ", "")[len(got.scheme):])
		_, err = parseAuthorization([]string{header, header})
		require.Error(t, err)
	})
}
