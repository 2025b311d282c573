package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Kinds of errors.
var (
	// ErrNoAccess means that this process does not have access to the API.
	ErrNoAccess = errors.New("no access to the Kubernetes API")
	// ErrForbidden means that this service account lacks permission for the call.
	ErrForbidden = errors.New("the service account is not permitted to do this")
	// ErrNotFound means that an object does not exist.
	ErrNotFound = errors.New("not found")
	// ErrChanged means that an object has changed since it was read, or already exists.
	ErrChanged = errors.New("changed meanwhile")
	// ErrNoResource means that the API does not have this kind of object. It also matches
	// [ErrNotFound].
	ErrNoResource = fmt.Errorf("the Kubernetes API does not have this resource: %w", ErrNotFound)
	// ErrInvalid means that the object violates its schema or an admission policy.
	ErrInvalid = errors.New("the API server refuses this object")
)

// ServiceAccountDir is the directory where kubelet mounts the token of a pod's service account.
const ServiceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// A Client calls the Kubernetes API as the pod's service account. It is safe for concurrent use.
type Client struct {
	server string // such as https://10.96.0.1:443
	dir    string // directory with the token, which kubelet renews
	http   *http.Client
}

// InCluster returns a client for this pod. It fails with [ErrNoAccess] if the pod has no token.
func InCluster() (*Client, error) {
	return New(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), ServiceAccountDir)
}

// New returns a client for the API server at host and port. dir contains the files token and
// ca.crt.
func New(host, port, dir string) (*Client, error) {
	if host == "" || port == "" {
		return nil, fmt.Errorf("%w: this process does not run in a pod ($KUBERNETES_SERVICE_HOST is empty)", ErrNoAccess)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the pod has no token: a service account token must be mounted at /var/run/secrets/kubernetes.io/serviceaccount, as components/node-lifecycle and components/replication do", ErrNoAccess)
	}
	if err != nil {
		return nil, fmt.Errorf("read the CA of the Kubernetes API: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("the CA file of the Kubernetes API, %s, contains no certificate", filepath.Join(dir, "ca.crt"))
	}
	return &Client{
		server: "https://" + net.JoinHostPort(host, port), dir: dir,
		http: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}},
	}, nil
}

// call makes a call, and decodes the response into result. If patch, a JSON patch, is nil, the call
// is a GET.
func (c *Client) call(ctx context.Context, path string, query url.Values, patch []byte, result any) error {
	method := http.MethodGet
	if patch != nil {
		method = http.MethodPatch
	}
	body, err := c.exchange(ctx, method, path, query, patch)
	if err == nil {
		err = json.Unmarshal(body, result)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// each calls do for each object of a list, which it reads page by page.
func each[T any](ctx context.Context, c *Client, path string, do func(T)) error {
	query := url.Values{"limit": {"500"}}
	for {
		var page struct {
			Metadata struct{ Continue string }
			Items    []T
		}
		if err := c.call(ctx, path, query, nil, &page); err != nil {
			return err
		}
		for _, item := range page.Items {
			do(item)
		}
		if page.Metadata.Continue == "" {
			return nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// Send makes a call with an object in JSON, or without a body if object is nil, and returns the
// body of the response. The server executed nothing if the error is [ErrNoAccess], [ErrForbidden],
// [ErrNotFound], [ErrNoResource], [ErrChanged] or [ErrInvalid]. After any other error, the call may
// have been executed, or may still be executed.
func (c *Client) Send(ctx context.Context, method, path string, object []byte) ([]byte, error) {
	body, err := c.exchange(ctx, method, path, nil, object)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return body, nil
}

// mostBytes limits the size of a response. A page of volume attachments is about 1 MiB.
const mostBytes = 64 << 20

func (c *Client) exchange(ctx context.Context, method, path string, query url.Values, body []byte) ([]byte, error) {
	address := c.server + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(filepath.Join(c.dir, "token")) // read for each call, because kubelet renews the token
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAccess, err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Accept", "application/json")
	switch {
	case method == http.MethodPatch:
		req.Header.Set("Content-Type", "application/json-patch+json")
	case body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, mostBytes))
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted:
		return text, nil
	}
	var status struct {
		Message string
		Details struct{ Name string }
	}
	_ = json.Unmarshal(text, &status)
	return nil, kindOf(method, resp.StatusCode, status.Details.Name, fmt.Errorf("HTTP status %d: %s", resp.StatusCode, status.Message))
}

// kindOf adds the kind to an error response. name is the name of the object in the response. A
// server without the resource includes no name.
func kindOf(method string, code int, name string, err error) error {
	kind := ErrChanged
	switch {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		kind = ErrForbidden
	case code == http.StatusNotFound && name == "":
		kind = ErrNoResource
	case code == http.StatusNotFound:
		kind = ErrNotFound
	case code == http.StatusConflict:
	case code == http.StatusUnprocessableEntity && (method == http.MethodPost || method == http.MethodPut):
		kind = ErrInvalid
	case code == http.StatusUnprocessableEntity: // a test in the JSON patch failed
	default:
		return err
	}
	return fmt.Errorf("%w: %w", kind, err)
}
