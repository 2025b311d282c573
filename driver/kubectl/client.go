package kubectl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
)

// A Client runs kubectl. It is safe for concurrent use.
type Client struct {
	// Program is the name or path of kubectl.
	Program string
	// Flags select the cluster and the user, such as --context=test.
	Flags []string
	// Namespace, Controller and Container name the controller, such as spdkcsi,
	// deployment/spdkcsi-controller and spdkcsi-controller.
	Namespace, Controller, Container string

	// direct, if not nil, sends requests to the Kubernetes API without kubectl. For the verb exec,
	// it runs spdk-csi with the arguments in path. Only tests that make many requests set it.
	direct func(ctx context.Context, verb, path string, body []byte) ([]byte, error)
}

// A Status is the exit code of an spdk-csi command that has already printed a message.
type Status int

func (s Status) Error() string { return "the command ended with exit code " + strconv.Itoa(int(s)) }

// get reads a path of the Kubernetes API.
func (c Client) get(ctx context.Context, path string, query url.Values, result any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	text, err := c.raw(ctx, "get", path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("kubectl get --raw %s: not the response of a Kubernetes API: %w", path, err)
	}
	return nil
}

// raw sends a request to the Kubernetes API and returns the response. verb is get, create, replace
// or delete. body is the request's body as JSON, or nil.
func (c Client) raw(ctx context.Context, verb, path string, body []byte) ([]byte, error) {
	args := []string{verb, "--raw", path}
	if c.direct != nil {
		return c.direct(ctx, verb, path, body)
	}
	if body != nil {
		args = append(args, "--filename=-")
	}
	var out, notes bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Program, append(args, c.Flags...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(body), &out, &notes
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("kubectl %s --raw %s: %w", verb, path, reason(err, &notes))
	}
	return out.Bytes(), nil
}

// CurrentNamespace returns the namespace that kubectl uses by default.
func (c Client) CurrentNamespace(ctx context.Context) (string, error) {
	var out, notes bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Program, append([]string{"config", "view", "--minify", "--output=jsonpath={..namespace}"}, c.Flags...)...)
	cmd.Stdout, cmd.Stderr = &out, &notes
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl config view: %w", reason(err, &notes))
	}
	return cmp.Or(out.String(), "default"), nil
}

// reason returns the output of a failed program, or the error if it printed nothing.
func reason(err error, notes *bytes.Buffer) error {
	if text := strings.TrimSpace(notes.String()); text != "" {
		return errors.New(text)
	}
	return err
}

// pageSize limits the number of objects in a response of the Kubernetes API. A page of
// PersistentVolumes takes about 5 MiB.
const pageSize = "2000"

// list reads all objects in a list, page by page.
func list[T any](ctx context.Context, c Client, path string, query url.Values) (all []T, err error) {
	if query == nil {
		query = url.Values{}
	}
	query.Set("limit", pageSize)
	for {
		var page struct {
			Metadata struct{ Continue string }
			Items    []T
		}
		if err := c.get(ctx, path, query, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Metadata.Continue == "" {
			return all, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// command returns a command that runs spdk-csi in the controller's pod.
func (c Client) command(ctx context.Context, stdin bool, args ...string) (*exec.Cmd, error) {
	pod, err := c.controllerPod(ctx)
	if err != nil {
		return nil, err
	}
	return c.commandIn(ctx, pod, c.Container, stdin, args...), nil
}

// commandIn returns a command that runs spdk-csi in a container of a workload or pod.
func (c Client) commandIn(ctx context.Context, workload, container string, stdin bool, args ...string) *exec.Cmd {
	all := []string{"exec", "--namespace=" + c.Namespace}
	if stdin {
		all = append(all, "--stdin")
	}
	all = append(all, c.Flags...)
	all = append(all, workload, "--container="+container, "--", "spdk-csi")
	return exec.CommandContext(ctx, c.Program, append(all, args...)...)
}

// Run runs an spdk-csi command in the controller's pod. A nonzero exit code is returned as a
// [Status].
func (c Client) Run(ctx context.Context, out, notes io.Writer, args ...string) error {
	if c.direct != nil {
		text, err := c.direct(ctx, "exec", strings.Join(args, " "), nil)
		_, _ = out.Write(text)
		return err
	}
	cmd, err := c.command(ctx, false, args...)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = out, notes
	return asStatus(cmd.Run())
}

func asStatus(err error) error {
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.Exited() {
		return Status(ended.ExitCode())
	}
	return err
}
