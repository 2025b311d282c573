package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/spdkgate/spdkgate/proxy/authn"
)

// minPassword is the default minimum length of a password, in characters.
const minPassword = 12

func newHashPassword() *cobra.Command {
	var bcrypt bool
	var path string
	var least int
	cmd := &cobra.Command{
		Use:   "hash-password",
		Short: "Create a password hash for the configuration",
		Long: `Ask for a password twice, without showing it, and write its hash into a file for
password_hash_file (--out), or to standard output for password_hash. Without a terminal,
the password is the first line of standard input; the command reads no further, so that
the next command can read the next line.

--out replaces the whole file, or changes nothing if the command fails, whereas a shell's
"> FILE" would leave an empty file. A new file has mode 0600. An existing one keeps its
owner, group and mode, without access for other users. If standard output is a file that
every user may read, its mode becomes 0600.`,
		Example: `  spdk-proxy hash-password --out /etc/spdk-proxy/secrets/admin.hash
  openssl rand -base64 24 | tee password | spdk-proxy hash-password`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("out") && path == "" {
				return usage("--out must name a file")
			}
			password, err := newPassword(cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if utf8.RuneCountInString(password) < least {
				return fmt.Errorf("the password has fewer than %d characters: choose a longer one. For an old one that clients still use, set --min-length", least)
			}
			hash := authn.HashPassword
			if bcrypt {
				hash = authn.HashPasswordBcrypt
			}
			text, err := hash(password)
			if err != nil {
				return err
			}
			if path != "" {
				return replaceSecretFile(path, text)
			}
			return printSecret(cmd.OutOrStdout(), text)
		},
	}
	cmd.Flags().StringVar(&path, "out", "", "write the hash into this file, in place of its contents")
	cmd.Flags().IntVar(&least, "min-length", minPassword, "minimum length of the password in characters")
	cmd.Flags().BoolVar(&bcrypt, "bcrypt", false, "use bcrypt instead of argon2id")
	return cmd
}

// newPassword prompts for a password twice. If in is not a terminal, it reads one line instead.
func newPassword(in io.Reader, prompt io.Writer) (string, error) {
	f, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		password, err := firstLine(in)
		if err == nil && password == "" {
			err = errors.New("the password is empty: send it as the first line of standard input")
		}
		return password, err
	}
	password, err := ask(f, prompt, "Password: ")
	if err != nil {
		return "", err
	}
	if password == "" {
		return "", errors.New("the password is empty: run the command again and type a password")
	}
	again, err := ask(f, prompt, "Again: ")
	if err != nil {
		return "", err
	}
	if password != again {
		return "", errors.New("the two passwords differ: run the command again")
	}
	return password, nil
}

func ask(terminal *os.File, prompt io.Writer, question string) (string, error) {
	fmt.Fprint(prompt, question)
	text, err := term.ReadPassword(int(terminal.Fd()))
	fmt.Fprintln(prompt)
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	return string(text), nil
}

// firstLine reads one line and nothing beyond it, because another command may read the rest of a
// pipe.
func firstLine(in io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		n, err := in.Read(b)
		if n == 1 && b[0] != '\n' {
			line = append(line, b[0])
		}
		if n == 1 && b[0] == '\n' || errors.Is(err, io.EOF) {
			return strings.TrimRight(string(line), "\r"), nil
		}
		if err != nil {
			return "", fmt.Errorf("read the password: %w", err)
		}
	}
}
