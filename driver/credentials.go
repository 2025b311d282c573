package driver

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"github.com/spdkgate/spdkgate/driver/request"
)

// SecretKey is the key of a Kubernetes secret, and the name of the file, that holds the credentials of all targets.
const SecretKey = "secret.json"

const secretShape = `{"rpcTokens": [{"name": "TARGET", "username": "…", "password": "…"}]}, with token or tokenFile instead of username and password, or with certFile and keyFile`

// A credential is a user of one target's proxy: by password, as spdk-csi has it, by a token, or by a client certificate,
// which may stand beside the others.
type Credential struct {
	Name      string `json:"name"`
	Username  string `json:"username,omitzero"`
	Password  string `json:"password,omitzero"`
	Token     string `json:"token,omitzero"`
	TokenFile string `json:"tokenFile,omitzero"`
	CertFile  string `json:"certFile,omitzero"`
	KeyFile   string `json:"keyFile,omitzero"`
}

// check returns what is wrong with a credential, empty if nothing is. A user name does not need a password.
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

// locate makes the paths of the credential's files absolute, relative to dir. Without dir it returns false if there are any files.
func (c *Credential) locate(dir string) bool {
	for _, path := range []*string{&c.TokenFile, &c.CertFile, &c.KeyFile} {
		if *path != "" && dir == "" {
			return false
		}
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	return true
}

// parseSecret reads secret.json; paths in it start at dir. The secret of a call has no dir: otherwise, whoever may write such
// a secret could make the controller use its own token for them. Errors never contain what a secret holds.
func parseSecret(text []byte, dir string) (map[string]Credential, error) {
	var secret struct {
		RPCTokens []Credential `json:"rpcTokens"`
	}
	if err := json.Unmarshal(text, &secret, json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(true)); err != nil {
		return nil, fmt.Errorf("%w: %s cannot be understood: it must look like %s", request.ErrCredentials, SecretKey, secretShape)
	}
	tokens := make(map[string]Credential, len(secret.RPCTokens))
	for i, t := range secret.RPCTokens {
		if wrong := t.check(); wrong != "" {
			return nil, fmt.Errorf("%w: %s: rpcTokens[%d] %s: it must look like %s", request.ErrCredentials, SecretKey, i, wrong, secretShape)
		}
		if !t.locate(dir) {
			return nil, fmt.Errorf("%w: %s: rpcTokens[%d] names files, which only the controller's own %s may ($%s, or in %s): take the secret out of the class, so that the controller's own is used, or give a token",
				request.ErrCredentials, SecretKey, i, SecretKey, CredentialsEnv, CredentialsDir)
		}
		if _, twice := tokens[t.Name]; twice {
			return nil, fmt.Errorf("%w: %s: rpcTokens has %q twice", request.ErrCredentials, SecretKey, t.Name)
		}
		tokens[t.Name] = t
	}
	return tokens, nil
}

// CredentialsFile returns the path of the controller's own credentials, for calls that have none; empty if there is no such file.
func CredentialsFile() (string, error) {
	path := cmp.Or(os.Getenv(CredentialsEnv), filepath.Join(CredentialsDir, SecretKey))
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv(CredentialsEnv) == "" {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the credentials: %w: put them there, or unset $%s", err, CredentialsEnv)
	}
	if _, err := parseSecret(text, filepath.Dir(path)); err != nil {
		return "", fmt.Errorf("credentials %s: %w", path, err)
	}
	return path, nil
}

// Credentials returns the credentials of a call by target: those of its secret, or else the controller's own, from file.
// class names the parameters of the class, without -name and -namespace, that give the call a secret; empty if none does.
func Credentials(secrets map[string]string, file, class string) (map[string]Credential, error) {
	if text, ok := secrets[SecretKey]; ok {
		return parseSecret([]byte(text), "")
	}
	if len(secrets) > 0 {
		return nil, fmt.Errorf("%w: the call's secret has no key %s: it must hold %s", request.ErrCredentials, SecretKey, secretShape)
	}
	if file != "" {
		text, err := os.ReadFile(file) // again for each call: secrets are rotated
		if err != nil {
			return nil, fmt.Errorf("%w: read the controller's credentials: %w", request.ErrNoCredentials, err)
		}
		return parseSecret(text, filepath.Dir(file))
	}
	remedy := fmt.Sprintf("mount a secret with the key %s at %s in the controller, or name the file in $%s", SecretKey, CredentialsDir, CredentialsEnv)
	if class != "" {
		remedy = fmt.Sprintf("set %s-name and %s-namespace in the class, or %s", class, class, remedy)
	}
	return nil, fmt.Errorf("%w: the call brings no secret: %s", request.ErrNoCredentials, remedy)
}
