package luks

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

// These are keys of a Kubernetes Secret.
const (
	// SecretPassphrase opens the volume. A new volume is encrypted with this passphrase.
	SecretPassphrase = "encryption-passphrase"
	// SecretPrevious is the passphrase that SecretPassphrase replaces. It is optional.
	SecretPrevious = "encryption-passphrase-previous"
)

// The minimum and maximum lengths of a passphrase in bytes. The previous passphrase may be shorter,
// because an administrator may have written the header with cryptsetup.
const leastLength, mostLength = 16, 512

// Keys contains the passphrases for a volume. Printing a Keys does not reveal the passphrases.
type Keys struct {
	Current hostauth.Secret
	// Previous is the passphrase that Current replaces; zero if there is none.
	Previous hostauth.Secret
}

// ReadKeys reads the passphrases in a call's secrets. It fails with ErrNoPassphrase if the secrets
// contain no passphrase. The class parameters that name the Secret for such calls consist of class
// and the suffixes -name and -namespace. Errors mention class.
func ReadKeys(secrets map[string]string, class string) (*Keys, error) {
	current, previous := secrets[SecretPassphrase], secrets[SecretPrevious]
	const form = "use %d to %d bytes of UTF-8 without control characters, which do not begin or end with white space, such as the output of: openssl rand -hex 32"
	switch {
	case current == "":
		return nil, fmt.Errorf("%w: the volume is encrypted, but the call's secret has no key %s: set %s-name and -namespace in the StorageClass to a Secret with this key, before the volume is created",
			ErrNoPassphrase, SecretPassphrase, class)
	case strings.HasSuffix(current, "\n"):
		return nil, fmt.Errorf("%w: %s ends with a line break: create the Secret with --from-literal, or from a file without one", ErrMalformed, SecretPassphrase)
	case len(current) < leastLength || len(current) > mostLength || !utf8.ValidString(current) ||
		strings.ContainsFunc(current, unicode.IsControl) || strings.TrimSpace(current) != current:
		return nil, fmt.Errorf("%w: %s: "+form, ErrMalformed, SecretPassphrase, leastLength, mostLength)
	case len(previous) > mostLength:
		return nil, fmt.Errorf("%w: %s is longer than %d bytes", ErrMalformed, SecretPrevious, mostLength)
	case current == previous:
		// Reject equal passphrases, because removing the previous passphrase would remove the only
		// one.
		return nil, fmt.Errorf("%w: %s and %s are equal: remove the latter", ErrMalformed, SecretPassphrase, SecretPrevious)
	}
	return &Keys{hostauth.NewSecret(current), hostauth.NewSecret(previous)}, nil
}
