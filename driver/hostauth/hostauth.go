package hostauth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"regexp"
	"slices"
	"strings"
)

// A Method selects how hosts authenticate. The empty Method means that hosts do not authenticate.
type Method string

// These methods are the values of the class parameter authentication, and of KeyMethod in contexts.
const (
	None   Method = ""
	DHCHAP Method = "dhchap" // NVMe over Fabrics: DH-HMAC-CHAP
	CHAP   Method = "chap"   // iSCSI
)

// These are keys of CSI's volume and publish contexts.
const (
	// KeyMethod is the method that the node must use to authenticate. A node that does not receive
	// the secret refuses to connect.
	KeyMethod = "authentication"
	// KeyBoth is "true" if the target must also authenticate to the node.
	KeyBoth = "authenticateTarget"
)

// These are keys of a Kubernetes Secret.
const (
	SecretDHCHAPKey      = "dhchap-key"      // authenticates the host
	SecretDHCHAPCtrlKey  = "dhchap-ctrl-key" // authenticates the target; optional
	SecretCHAPUser       = "chap-user"
	SecretCHAPPassword   = "chap-password"
	SecretCHAPTargetUser = "chap-target-user" // together with the next key, authenticates the target; optional
	SecretCHAPTargetPass = "chap-target-password"
)

var secretKeys = map[Method][]string{
	DHCHAP: {SecretDHCHAPKey, SecretDHCHAPCtrlKey},
	CHAP:   {SecretCHAPUser, SecretCHAPPassword, SecretCHAPTargetUser, SecretCHAPTargetPass},
}

// SecretKeys returns all keys of a Kubernetes Secret that this package reads.
func SecretKeys() []string { return slices.Concat(secretKeys[DHCHAP], secretKeys[CHAP]) }

// ErrMissing means that a call lacks the secret required by its volume.
var ErrMissing = errors.New("no key to authenticate with")

// ErrMalformed means that a secret cannot be used. The error text contains no part of the secret.
var ErrMalformed = errors.New("unusable key")

// A Secret is a string that is never printed. The string is behind a pointer because fmt does not
// call methods of unexported fields, but prints pointers within structs as addresses.
type Secret struct{ text *string }

// NewSecret returns a secret.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

const hidden = "(secret)"

// Format implements [fmt.Formatter] for all verbs.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// LogValue implements [slog.LogValuer].
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText implements [encoding.TextMarshaler].
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Keys contains a host's secrets for a volume. A nil *Keys means that hosts do not authenticate.
type Keys struct {
	Method Method
	// Host and Target authenticate the host and the target: DH-HMAC-CHAP keys or CHAP passwords.
	// Target is zero if the target does not authenticate.
	Host, Target Secret
	// HostUser and TargetUser are the CHAP user names.
	HostUser, TargetUser string
}

// Both reports whether the target also authenticates.
func (k *Keys) Both() bool { return k != nil && !k.Target.IsZero() }

// Format implements [fmt.Formatter].
func (k *Keys) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// IsSecretKey reports whether this package reads the key with this name in a Kubernetes Secret.
func IsSecretKey(name string) bool {
	return slices.Contains(secretKeys[DHCHAP], name) || slices.Contains(secretKeys[CHAP], name)
}

// ParseMethod reads a method from a context.
func ParseMethod(text string) (Method, error) {
	switch m := Method(text); m {
	case None, DHCHAP, CHAP:
		return m, nil
	}
	return None, fmt.Errorf("%q is %q: it must be %s or %s", KeyMethod, text, DHCHAP, CHAP)
}

// Read reads the keys for a method from a call's secrets. It returns nil if the method is None, and
// fails with ErrMissing if the secrets contain no key. The class parameters that name the Secret
// for such calls consist of class and the suffixes -name and -namespace. Errors mention class.
func Read(m Method, secrets map[string]string, class string) (*Keys, error) {
	missing := func(key string) error {
		return fmt.Errorf("%w: the volume requires authentication (%s), but the call's secret has no key %s: set %s-name and -namespace in the StorageClass to a Secret with this key, before the volume is created",
			ErrMissing, m, key, class)
	}
	k := &Keys{Method: m}
	switch m {
	case None:
		return nil, nil
	case DHCHAP:
		k.Host, k.Target = NewSecret(strings.TrimSpace(secrets[SecretDHCHAPKey])), NewSecret(strings.TrimSpace(secrets[SecretDHCHAPCtrlKey]))
		if k.Host.IsZero() {
			return nil, missing(SecretDHCHAPKey)
		}
		return k, errors.Join(checkDHCHAP(SecretDHCHAPKey, k.Host), checkDHCHAP(SecretDHCHAPCtrlKey, k.Target))
	case CHAP:
		k.HostUser, k.TargetUser = secrets[SecretCHAPUser], secrets[SecretCHAPTargetUser]
		k.Host, k.Target = NewSecret(secrets[SecretCHAPPassword]), NewSecret(secrets[SecretCHAPTargetPass])
		switch {
		case k.HostUser == "":
			return nil, missing(SecretCHAPUser)
		case k.Host.IsZero():
			return nil, missing(SecretCHAPPassword)
		}
		return k, checkCHAP(k)
	}
	return nil, fmt.Errorf("%w: unknown method %q", ErrMalformed, m)
}

// dhchapForm matches the output of nvme gen-dhchap-key, which contains the hash that transforms the
// key, and the key with its CRC-32.
var dhchapForm = regexp.MustCompile(`^DHHC-1:(0[0-3]):([A-Za-z0-9+/]+=*):$`)

// dhchapLengths contains the valid key lengths in bytes, by hash.
var dhchapLengths = map[string][]int{"00": {32, 48, 64}, "01": {32}, "02": {48}, "03": {64}}

func checkDHCHAP(name string, s Secret) error {
	if s.IsZero() {
		return nil
	}
	parts := dhchapForm.FindStringSubmatch(s.Reveal())
	if parts == nil {
		return fmt.Errorf("%w: %s must have the form DHHC-1:HASH:BASE64:, as generated by nvme gen-dhchap-key", ErrMalformed, name)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(parts[2])
	n := len(b) - crc32.Size
	switch {
	case err != nil || !slices.Contains(dhchapLengths[parts[1]], n):
		return fmt.Errorf("%w: the length of %s does not fit its hash: a character may be missing", ErrMalformed, name)
	case binary.LittleEndian.Uint32(b[n:]) != crc32.ChecksumIEEE(b[:n]):
		return fmt.Errorf("%w: the checksum of %s is wrong: a character may have changed", ErrMalformed, name)
	}
	return nil
}

// User names and passwords are limited because they are written to iscsid's records, one per line,
// and because SPDK allows at most 255 bytes.
var (
	chapUser     = regexp.MustCompile(`^[!-~]{1,255}$`)
	chapPassword = regexp.MustCompile(`^[!-~]{12,255}$`)
)

func checkCHAP(k *Keys) error {
	const form = "printable ASCII characters without spaces"
	switch {
	case (k.TargetUser == "") != k.Target.IsZero():
		return fmt.Errorf("%w: the secret contains only one of %s and %s: add the other, or remove it", ErrMalformed, SecretCHAPTargetUser, SecretCHAPTargetPass)
	case !chapUser.MatchString(k.HostUser) || k.TargetUser != "" && !chapUser.MatchString(k.TargetUser):
		return fmt.Errorf("%w: %s and %s must have 1 to 255 %s", ErrMalformed, SecretCHAPUser, SecretCHAPTargetUser, form)
	case !chapPassword.MatchString(k.Host.Reveal()) || !k.Target.IsZero() && !chapPassword.MatchString(k.Target.Reveal()):
		return fmt.Errorf("%w: %s and %s must have 12 to 255 %s", ErrMalformed, SecretCHAPPassword, SecretCHAPTargetPass, form)
	case k.Host.Reveal() == k.Target.Reveal():
		// RFC 7143 forbids equal passwords, because a host could make the target compute the host's
		// own response.
		return fmt.Errorf("%w: %s and %s must differ", ErrMalformed, SecretCHAPPassword, SecretCHAPTargetPass)
	}
	return nil
}

var names = regexp.MustCompile(`^[a-z2-7]{32}$`)

// IsName reports whether a string has the format of the result of [Secret.Name].
func IsName(text string) bool { return names.MatchString(text) }

// Name derives a name from a secret. All names have the same length. The secret cannot be derived
// from its name, because a DH-HMAC-CHAP key has 256 random bits or more. Equal secrets have equal
// names.
func (s Secret) Name() string {
	h := hmac.New(sha256.New, []byte("spdkgate name of a DH-HMAC-CHAP key"))
	h.Write([]byte(s.Reveal()))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:20]))
}
