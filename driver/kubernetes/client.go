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
	// ErrNoAccess means that this process has no access to the API.
	ErrNoAccess = errors.New("no access to the Kubernetes API")
	// ErrForbidden means that the API server does not allow this service account to make the call.
	ErrForbidden = errors.New("the service account is not permitted to do this")
	// ErrNotFound means that an object does not exist.
	ErrNotFound = errors.New("not found")
	// ErrChanged means that an object has changed since it was read.
	ErrChanged = errors.New("changed meanwhile")
)

// serviceAccountDir is where kubelet mounts the token of a pod's service account.
const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// A Client calls the Kubernetes API as the pod's service account. It is safe for concurrent use.
type Client struct {
	server string // such as https://10.96.0.1:443
	dir    string // directory with the token, which kubelet renews
	http   *http.Client
}

// InCluster returns a client for this pod. It fails with [ErrNoAccess] if the pod has no token.
func InCluster() (*Client, error) {
	return newClient(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"), serviceAccountDir)
}

func newClient(host, port, dir string) (*Client, error) {
	if host == "" || port == "" {
		return nil, fmt.Errorf("%w: this process does not run in a pod ($KUBERNETES_SERVICE_HOST is empty)", ErrNoAccess)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the pod has no token: a service account token must be mounted at /var/run/secrets/kubernetes.io/serviceaccount, as components/node-lifecycle does", ErrNoAccess)
	}
	if err != nil {
		return nil, fmt.Errorf("read the CA of the Kubernetes API: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("the CA of the Kubernetes API, %s, has no certificate", filepath.Join(dir, "ca.crt"))
	}
	return &Client{
		server: "https://" + net.JoinHostPort(host, port), dir: dir,
		http: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}},
	}, nil
}

// call makes a call, and decodes the response into result. body is a JSON patch; nil makes it a
// GET.
func (c *Client) call(ctx context.Context, path string, query url.Values, patch []byte, result any) error {
	method := http.MethodGet
	if patch != nil {
		method = http.MethodPatch
	}
	err := c.exchange(ctx, method, path, query, patch, result)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// mostBytes limits the size of a response. A page of volume attachments is about 1 MiB.
const mostBytes = 64 << 20

func (c *Client) exchange(ctx context.Context, method, path string, query url.Values, patch []byte, result any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.server+path+"?"+query.Encode(), bytes.NewReader(patch))
	if err != nil {
		return err
	}
	token, err := os.ReadFile(filepath.Join(c.dir, "token")) // read for each call, because kubelet renews the token
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoAccess, err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Accept", "application/json")
	if patch != nil {
		req.Header.Set("Content-Type", "application/json-patch+json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostBytes))
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusOK {
		return json.Unmarshal(body, result)
	}
	var status struct{ Message string }
	_ = json.Unmarshal(body, &status)
	err = fmt.Errorf("HTTP status %d: %s", resp.StatusCode, status.Message)
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %w", ErrForbidden, err)
	case http.StatusNotFound:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case http.StatusConflict, http.StatusUnprocessableEntity: // 422 if a test in a JSON patch fails
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}
