package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/request"
)

// SecretKey is the key of a Kubernetes Secret, and the name of the file, that contains the
// credentials of all targets.
const SecretKey = "secret.json"

const secretShape = `{"rpcTokens": [{"name": "TARGET", "username": "…", "password": "…"}]}, with token or tokenFile instead of username and password, or with certFile and keyFile`

// A Credential authenticates the driver to one target's proxy: by user name and password, as in
// SPDK's spdk-csi, or by a token. A client certificate may replace either or be used with it.
type Credential struct {
	// Name is the name of the target in config.json.
	Name string `json:"name"`
	// Username and Password are the credentials of one of the proxy's users.
	Username string `json:"username,omitzero"`
	Password string `json:"password,omitzero"`
	// Token is a bearer token, such as one created by spdk-proxy new-token.
	Token string `json:"token,omitzero"`
	// TokenFile is a file with a bearer token, such as a ServiceAccount token. It is read for each
	// call. Paths are relative to the Secret's directory.
	TokenFile string `json:"tokenFile,omitzero"`
	// CertFile and KeyFile are files with a client certificate and its key, instead of or in
	// addition to the other credentials.
	CertFile string `json:"certFile,omitzero"`
	KeyFile  string `json:"keyFile,omitzero"`
}

// check returns a description of the problem with a credential, or an empty string if the
// credential is valid. A user name without a password is valid.
func (c Credential) check() string {
	kinds := 0
	for _, given := range []bool{c.Username != "", c.Token != "", c.TokenFile != ""} {
		if given {
			kinds++
		}
	}
	switch {
	case c.Name == "":
		return "has no name"
	case kinds == 0 && c.CertFile == "":
		return "has no username, token, tokenFile or certFile"
	case kinds > 1, c.Username == "" && c.Password != "":
		return "must have one of username with password, token and tokenFile"
	case (c.CertFile == "") != (c.KeyFile == ""):
		return "needs certFile and keyFile together"
	}
	return ""
}

// Account describes the credential for a human reader, without its secrets.
func (c Credential) Account() string {
	var parts []string
	switch {
	case c.Username != "":
		parts = append(parts, fmt.Sprintf("the user name %q and its password", c.Username))
	case c.Token != "":
		parts = append(parts, "the token")
	case c.TokenFile != "":
		parts = append(parts, "the token in "+c.TokenFile)
	}
	if c.CertFile != "" {
		parts = append(parts, "the client certificate in "+c.CertFile)
	}
	return strings.Join(parts, " with ")
}

// files returns the credential's paths.
func (c *Credential) files() []*string { return []*string{&c.TokenFile, &c.CertFile, &c.KeyFile} }

func (c *Credential) namesFiles() bool {
	return slices.ContainsFunc(c.files(), func(path *string) bool { return *path != "" })
}

// resolveFiles makes the paths of the credential's files absolute, relative to dir.
func (c *Credential) resolveFiles(dir string) {
	for _, path := range c.files() {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
}

// errFiles means that a call's secret refers to files that the controller's own secret does not
// contain.
var errFiles = fmt.Errorf("names files. The secret of a call may name a file only if the controller's own %s ($%s, or in %s) contains the same entry: correct the entry, use a token or a password, or remove the secret from the class, so that the controller's own is used",
	SecretKey, CredentialsEnv, CredentialsDir)

// parseSecret reads secret.json, and calls resolve for each entry that names files. Errors never
// contain parts of the secret.
func parseSecret(text []byte, resolve func(*Credential) error) (map[string]Credential, error) {
	var secret struct {
		RPCTokens []Credential `json:"rpcTokens"`
	}
	if err := json.Unmarshal(text, &secret, json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(true)); err != nil {
		return nil, fmt.Errorf("%w: %s cannot be parsed: it must look like %s", request.ErrCredentials, SecretKey, secretShape)
	}
	tokens := make(map[string]Credential, len(secret.RPCTokens))
	for i, t := range secret.RPCTokens {
		if wrong := t.check(); wrong != "" {
			return nil, fmt.Errorf("%w: %s: rpcTokens[%d] %s: it must look like %s", request.ErrCredentials, SecretKey, i, wrong, secretShape)
		}
		if t.namesFiles() {
			if err := resolve(&t); err != nil {
				return nil, fmt.Errorf("%w: %s: rpcTokens[%d] %w", request.ErrCredentials, SecretKey, i, err)
			}
		}
		if _, twice := tokens[t.Name]; twice {
			return nil, fmt.Errorf("%w: %s: rpcTokens has %q twice", request.ErrCredentials, SecretKey, t.Name)
		}
		tokens[t.Name] = t
	}
	return tokens, nil
}

// parseOwn parses the controller's own secret.json. Paths in the file are relative to its
// directory.
func parseOwn(text []byte, file string) (map[string]Credential, error) {
	return parseSecret(text, func(c *Credential) error { c.resolveFiles(filepath.Dir(file)); return nil })
}

// parseCalls parses a call's secret.json. An entry may name files only if the controller's own
// secret, in file, contains the same entry. Such an entry gives its author no additional access,
// because calls without a secret use the controller's own secret. Calls for a volume carry the
// Secret that was used to create the volume, so this rule allows an administrator to change such a
// Secret from a password to a token file. Other paths are rejected because they could refer to any
// of the controller's files.
func parseCalls(text []byte, file string) (map[string]Credential, error) {
	return parseSecret(text, func(c *Credential) error {
		given := *c
		c.resolveFiles(filepath.Dir(file))
		if file == "" {
			return errFiles
		}
		own, err := os.ReadFile(file)
		if err != nil {
			return errFiles
		}
		same := false
		_, err = parseSecret(own, func(o *Credential) error { same = same || *o == given; return nil })
		if err != nil || !same {
			return errFiles
		}
		return nil
	})
}

// CredentialsFile returns the path of the controller's own credentials, which are used for calls
// without a secret. It returns an empty path if there is no such file, unless the environment names
// one.
func CredentialsFile() (string, error) {
	path := cmp.Or(os.Getenv(CredentialsEnv), filepath.Join(CredentialsDir, SecretKey))
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv(CredentialsEnv) == "" {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the credentials: %w: create the file, or unset $%s", err, CredentialsEnv)
	}
	if _, err := parseOwn(text, path); err != nil {
		return "", fmt.Errorf("credentials %s: %w", path, err)
	}
	return path, nil
}

// Credentials returns the credentials for a call by target: the credentials in the call's secret,
// or else the controller's own from file. If a secret contains only host keys (package hostauth),
// the controller's own credentials are used. The class parameters that assign a secret to such
// calls consist of class and the suffixes -name and -namespace; class is empty for calls that never
// have a secret.
func Credentials(secrets map[string]string, file, class string) (map[string]Credential, error) {
	if text, ok := secrets[SecretKey]; ok {
		return parseCalls([]byte(text), file)
	}
	if slices.ContainsFunc(slices.Collect(maps.Keys(secrets)), func(key string) bool { return !hostauth.IsSecretKey(key) }) {
		return nil, fmt.Errorf("%w: the call's secret has no key %s: it must contain %s", request.ErrCredentials, SecretKey, secretShape)
	}
	if file != "" {
		text, err := os.ReadFile(file) // read for each call, because secrets are rotated
		if err != nil {
			return nil, fmt.Errorf("%w: read the controller's credentials: %w", request.ErrNoCredentials, err)
		}
		return parseOwn(text, file)
	}
	remedy := fmt.Sprintf("mount a secret with the key %s at %s in the controller, or name the file in $%s", SecretKey, CredentialsDir, CredentialsEnv)
	if class != "" {
		remedy = fmt.Sprintf("set %s-name and %s-namespace in the class, or %s", class, class, remedy)
	}
	return nil, fmt.Errorf("%w: the call has no secret: %s", request.ErrNoCredentials, remedy)
}
