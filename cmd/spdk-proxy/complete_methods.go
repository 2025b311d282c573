package main

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// completionTimeout limits how long a user has to wait for completions.
const completionTimeout = 3 * time.Second

// complete is like completeCall, but offers only methods that the target has and the user may call.
// If these methods cannot be determined, complete offers the methods of all releases.
func (o *callOptions) complete(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	offers, directive := completeCall(cmd, args, word)
	if len(args) > 0 {
		return offers, directive
	}
	usable := o.usableMethods(cmd.Context())
	if usable == nil {
		return offers, directive
	}
	offers = offers[:0]
	for _, m := range rpcschema.Default().Methods() {
		if usable(m) {
			offers = append(offers, cobra.CompletionWithDesc(m.Name, m.Summary))
		}
	}
	return offers, directive
}

// usableMethods returns a function that reports whether the target has a method and the user may
// call it. If this cannot be determined, usableMethods returns nil. It never asks for a password.
func (o callOptions) usableMethods(ctx context.Context) func(*rpcschema.Method) bool {
	if _, given := os.LookupEnv(passwordVariable); !given && o.passwordFile == "" && o.socket == "" && o.tokenFile == "" && o.cert == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	o.timeout = completionTimeout
	caller, err := o.caller()
	if err != nil {
		return nil
	}
	defer func() { _ = caller.Close() }()

	allowed, err := allowedMethods(ctx, caller)
	isProxy := err == nil
	if !isProxy && spdkrpc.KindOf(err) != spdkrpc.MethodNotFound {
		return nil // the target's own socket does not have the method
	}
	var present []string
	err = caller.Call(ctx, "rpc_get_methods", map[string]any{"include_aliases": true}, &present)
	isPresent := err == nil
	if !isProxy && !isPresent {
		return nil
	}
	return func(m *rpcschema.Method) bool {
		switch {
		case isProxy && !slices.Contains(allowed, m.Name):
			return false
		case m.ServedBy == rpcschema.ServedByProxy:
			return isProxy
		case !isPresent:
			return true
		}
		has := func(name string) bool { return slices.Contains(present, name) }
		return has(m.Name) || slices.ContainsFunc(m.Aliases, has)
	}
}

// discoverMethod is the name of the proxy's method that lists the methods available to the caller.
const discoverMethod = "rpc.discover"

// allowedMethods returns the names of the methods that the user may call through a proxy.
func allowedMethods(ctx context.Context, caller spdkrpc.Caller) (names []string, err error) {
	var document struct {
		Methods []struct {
			Name string `json:"name"`
		} `json:"methods"`
	}
	if err := caller.Call(ctx, discoverMethod, nil, &document); err != nil {
		return nil, err
	}
	for _, m := range document.Methods {
		names = append(names, m.Name)
	}
	return names, nil
}
