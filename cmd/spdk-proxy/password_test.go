package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

// Two commands of a script that share standard input each get their own line.
func TestHashPasswordReadsOneLineOfAPipe(t *testing.T) {
	for stdin, left := range map[string]string{
		"correct horse\nsecond line\n":  "second line\n",
		"correct horse\r\n\nthird line": "\nthird line",
		"correct horse\n":               "",
		"correct horse":                 "",
	} {
		in, write, err := os.Pipe()
		require.NoError(t, err)
		_, err = write.WriteString(stdin)
		require.NoError(t, err)
		require.NoError(t, write.Close())
		cmd := command(t.Context(), "hash-password", "--bcrypt")
		cmd.Stdin = in
		hash, err := cmd.Output()
		require.NoError(t, err)
		rest, err := io.ReadAll(in)
		require.NoError(t, err)
		assert.Equal(t, left, string(rest), "%q", stdin)
		assert.NoError(t, bcrypt.CompareHashAndPassword(bytes.TrimSpace(hash), []byte("correct horse")), "%q", stdin)
		require.NoError(t, in.Close())
	}
}

func TestHashPasswordRefusesAnEmptyPassword(t *testing.T) {
	for _, stdin := range []string{"", "\n", "\r\n", "\nsecond line\n"} {
		for _, flag := range []string{"", "--bcrypt"} {
			o := run(t, stdin, strings.Fields("hash-password "+flag)...)
			assert.Equal(t, outcome{"", "spdk-proxy: the password is empty: send it as the first line of standard input\n", exitFailed}, o, "%q", stdin)
		}
	}
}
