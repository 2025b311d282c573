package driver

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
)

// secretKey is the key of a Kubernetes secret, and the name of the file, that holds the credentials of all targets.
const secretKey = "secret.json"

const secretShape = `{"rpcTokens": [{"name": "TARGET", "username": "…", "password": "…"}]}`

// A credential is a user of one target's proxy.
type credential struct {
	Name     string `json:"name"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// parseSecret reads secret.json. What it holds never gets into an error.
func parseSecret(text []byte) (map[string]credential, error) {
	var secret struct {
		RPCTokens []credential `json:"rpcTokens"`
	}
	if err := json.Unmarshal(text, &secret, json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(true)); err != nil {
		return nil, fmt.Errorf("%w: %s cannot be understood: it must look like %s", errCredentials, secretKey, secretShape)
	}
	tokens := make(map[string]credential, len(secret.RPCTokens))
	for i, t := range secret.RPCTokens {
		if t.Name == "" || t.Username == "" {
			return nil, fmt.Errorf("%w: %s: rpcTokens[%d] has no name or no username: it must look like %s", errCredentials, secretKey, i, secretShape)
		}
		if _, twice := tokens[t.Name]; twice {
			return nil, fmt.Errorf("%w: %s: rpcTokens has %q twice", errCredentials, secretKey, t.Name)
		}
		tokens[t.Name] = t
	}
	return tokens, nil
}

// CredentialsFile is the path of the controller's own credentials, for calls that bring none; empty if it has none.
func CredentialsFile() (string, error) {
	path := cmp.Or(os.Getenv(CredentialsEnv), filepath.Join(CredentialsDir, secretKey))
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv(CredentialsEnv) == "" {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the credentials: %w: put them there, or unset $%s", err, CredentialsEnv)
	}
	if _, err := parseSecret(text); err != nil {
		return "", fmt.Errorf("credentials %s: %w", path, err)
	}
	return path, nil
}

// credentials finds the credentials of a call: those it brings, or else the controller's own. class names the
// StorageClass's parameters, without -name and -namespace, that make it bring some; empty if nothing does.
func credentials(secrets map[string]string, file, class string) (map[string]credential, error) {
	if text, ok := secrets[secretKey]; ok {
		return parseSecret([]byte(text))
	}
	if len(secrets) > 0 {
		return nil, fmt.Errorf("%w: the call's secret has no key %s: it must hold %s", errCredentials, secretKey, secretShape)
	}
	if file != "" {
		text, err := os.ReadFile(file) // again for each call: secrets are rotated
		if err != nil {
			return nil, fmt.Errorf("%w: read the controller's credentials: %w", errNoCredentials, err)
		}
		return parseSecret(text)
	}
	remedy := fmt.Sprintf("mount a secret with the key %s at %s in the controller, or name the file in $%s", secretKey, CredentialsDir, CredentialsEnv)
	if class != "" {
		remedy = fmt.Sprintf("set %s-name and %s-namespace in the class, or %s", class, class, remedy)
	}
	return nil, fmt.Errorf("%w: the call brings no secret: %s", errNoCredentials, remedy)
}
