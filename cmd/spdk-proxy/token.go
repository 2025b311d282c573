package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

func newToken() *cobra.Command {
	var hashFile, comment string
	var days int
	cmd := &cobra.Command{
		Use:   "new-token",
		Short: "Create a bearer token and its hash for the configuration",
		Long: `Create a bearer token for a program and print it. The token is printed only once and
not stored. Its hash, which is not secret, is appended to a file for token_hash_file
(--hash-file), or printed to standard error for token_hashes. If standard output is a
file that every user may read, its mode becomes 0600.

To replace a token, create a new one for the same user and give it to the client. Remove
the old token's line when the log no longer shows its id (credential).`,
		Example: `  spdk-proxy new-token --days 365 --hash-file /etc/spdk-proxy/backup.tokens > backup.token
  spdk-proxy call --url https://storage1:9009 --token-file backup.token spdk_get_version`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if days < 0 {
				return usage("--days must not be negative")
			}
			var until time.Time
			if days > 0 {
				until = time.Now().AddDate(0, 0, days)
			}
			token := authn.NewToken()
			hash := authn.HashToken(token, until)
			line := hash.String()
			if comment != "" {
				line += " # " + comment
			}
			if !printable.Valid(comment) {
				return usage("--comment must be one line without control characters")
			}
			if hashFile == "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "token_hashes: [%q]\n", line)
			} else if err := appendLine(hashFile, line); err != nil {
				return err
			}
			return printSecret(cmd.OutOrStdout(), token)
		},
	}
	cmd.Flags().StringVar(&hashFile, "hash-file", "", "append the hash to this file")
	cmd.Flags().IntVar(&days, "days", 0, "lifetime of the token in days; 0: unlimited")
	cmd.Flags().StringVar(&comment, "comment", "", "comment after the hash, such as the purpose of the token")
	return cmd
}

// appendLine appends a line to a file, after a newline if the file does not end with one. A new
// file is readable by every user: it contains no secret, and the service's user must be able to
// read it.
func appendLine(path, line string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("append the hash: %w", err)
	}
	if len(old) > 0 && old[len(old)-1] != '\n' {
		line = "\n" + line
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("append the hash: %w", err)
	}
	_, err = f.WriteString(line + "\n")
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("append the hash to %s: %w", path, err)
	}
	return nil
}
