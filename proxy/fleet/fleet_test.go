package fleet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func file(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "servers.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestLoadAppliesDefaults(t *testing.T) {
	path := file(t, `
defaults: {ca_file: /ca.pem, user: admin, password_file: secret/password}
servers:
  - {name: a, url: "https://a:9009"}
  - {name: b, url: "https://b:9009", ca_file: b.pem, token_file: b.token}
  - {name: c, url: "https://c:9009", cert_file: c.pem}
`)
	dir := filepath.Dir(path)
	list, err := Load(path)
	require.NoError(t, err)
	assert.Equal(t, []Server{
		{Name: "a", URL: "https://a:9009", CAFile: "/ca.pem", User: "admin", PasswordFile: dir + "/secret/password"},
		{Name: "b", URL: "https://b:9009", CAFile: dir + "/b.pem", TokenFile: dir + "/b.token"},
		{Name: "c", URL: "https://c:9009", CAFile: "/ca.pem", CertFile: dir + "/c.pem"},
	}, list)
}

func TestInvalidFleetFilesAreRejected(t *testing.T) {
	for text, says := range map[string]string{
		"":            "the file is empty",
		"servers: []": "servers is missing",
		"servers: [{name: a, url: 'https://a', password: p}]":                                                                              "password is not a key of servers[0]: did you mean password_file?",
		"servers: [{url: 'https://a', token_file: t}]":                                                                                     "servers[0]: name is missing",
		"servers: [{name: a, token_file: t}]":                                                                                              "servers[0]: url is missing",
		"servers: [{name: a, url: 'https://a'}]":                                                                                           "credentials are missing",
		"servers: [{name: a, url: 'https://a', user: u}]":                                                                                  "user and password_file go together",
		"servers: [{name: a, url: 'https://a', user: u, password_file: p, token_file: t}]":                                                 "either token_file",
		"servers: [{name: a, url: 'https://a', token_file: t, key_file: k}]":                                                               "key_file needs cert_file",
		"servers: [{name: a, url: 'https://a', token_file: t}, {name: a, url: 'https://b', token_file: t}]":                                "servers[1]: servers[0] also has the name a",
		"servers: [{name: a, url: 'https://a', token_file: t}, {name: b, url: 'https://a', token_file: t}]":                                "servers[1]: server a has the same url",
		"defaults: {name: d}\nservers: [{name: a, url: 'https://a', token_file: t}]":                                                       "defaults must not have name or url",
		"servers: [{name: a, url: 'https://a', token_file: t}, {name: b, token_file: t}, {name: c, url: 'https://c', key_file: t}]\n---\n": "second document",
	} {
		_, err := Load(file(t, text))
		assert.ErrorContains(t, err, says, text)
	}
	path := file(t, "servers: [{name: a, url: 'https://a', token_file: t}]")
	require.NoError(t, os.Chmod(path, 0o666))
	_, err := Load(path)
	assert.ErrorContains(t, err, "every user of this host may change")
}

// If a server does not respond by its deadline, Read returns an error for that server, but not for
// the other servers. It reads no more servers concurrently than allowed.
func TestFailingServerDoesNotFailOtherReads(t *testing.T) {
	const n = 20
	wrong := errors.New("wrong")
	var running, most atomic.Int32
	var mu sync.Mutex
	read, errs := map[int]bool{}, map[int]error{}
	Read(t.Context(), n, Bounds{AtOnce: 4, Each: time.Second}, func(ctx context.Context, i int) error {
		now := running.Add(1)
		defer running.Add(-1)
		for {
			if old := most.Load(); now <= old || most.CompareAndSwap(old, now) {
				break
			}
		}
		switch i % 10 {
		case 3:
			<-ctx.Done()
			return nil // a read function can fail to detect that its data is incomplete
		case 4:
			return wrong
		}
		mu.Lock()
		defer mu.Unlock()
		read[i] = true
		return nil
	}, func(i int, err error) {
		mu.Lock()
		defer mu.Unlock()
		errs[i] = err
	})
	assert.LessOrEqual(t, most.Load(), int32(4))
	assert.Len(t, errs, 4)
	for _, i := range []int{3, 13} {
		assert.ErrorIs(t, errs[i], ErrNoAnswer)
	}
	for _, i := range []int{4, 14} {
		assert.ErrorIs(t, errs[i], wrong)
	}
	assert.Len(t, read, n-4)
}
