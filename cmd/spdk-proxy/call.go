package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// callOptions contains the flags that select the target and the user of a call.
type callOptions struct {
	socket, url, user, passwordFile, ca string
	tokenFile, cert, key                string
	timeout                             time.Duration
	streams                             bool // the command makes enough calls to justify opening a stream
	explicit                            bool // the options come from a file, so environment variables are ignored
	plaintext                           bool // credentials may cross a network unencrypted
}

func newCall() *cobra.Command {
	var o callOptions
	cmd := &cobra.Command{
		Use:   "call METHOD [name=value | name:=JSON]...",
		Short: "Call a method and print the result",
		Long: `Call a method through a proxy (--url) or directly at the target's socket
(--socket), and print the result as JSON.

The schema gives each value its type. a.b=value sets member b of the object a.
Repeat name=value to add to a list. name:=JSON passes a JSON value unchanged, and
name:=@FILE that of a file. For a secret, use name=@FILE, which reads the first line
of a file, because every user of the host can read a command line.

Authenticate with a user name and a password (--user), a token (--token-file) or a
client certificate (--cert and --key). The password comes from --password-file or
from $SPDK_PROXY_PASSWORD; otherwise the command asks for it.

Exit codes: 0 success; 1 SPDK or the proxy refused the call; 2 a mistake on the
command line; 3 the proxy or the target is unreachable, nothing was executed; 4 no
answer arrived, the call may have been executed; 5 authentication or authorization
failed; 7 a limit of the proxy is reached, such as that of failed logins, nothing was
executed: the message says when to retry.`,
		Example: `  export SPDK_PROXY_URL=https://storage1:9009 SPDK_PROXY_USER=admin SPDK_PROXY_CA=tls.crt
  spdk-proxy call spdk_get_version
  spdk-proxy call bdev_lvol_create lvs_name=lvs0 lvol_name=vol1 size_in_mib=1024 thin_provision=true
  spdk-proxy call nvmf_subsystem_add_listener nqn=nqn.2024-01.io.spdk:v1 \
      listen_address.trtype=tcp listen_address.traddr=192.0.2.1 listen_address.trsvcid=4420
  spdk-proxy call --socket /var/tmp/spdk.sock bdev_set_qos_limit name=vol1 rw_ios_per_sec:=20000`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("METHOD is missing, such as spdk_get_version: see `spdk-proxy call --help`")
			}
			return nil
		},
		ValidArgsFunction: o.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			result, err := o.call(ctx, args[0], args[1:])
			if err != nil {
				return err
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, result, "", "  "); err != nil {
				return fmt.Errorf("the response is not JSON: %w", err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), pretty.String())
			return err
		},
	}
	o.addTo(cmd)
	cmd.Flags().DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long to wait for the response")
	return cmd
}

// These environment variables are overridden by flags.
const (
	urlVariable      = "SPDK_PROXY_URL"
	userVariable     = "SPDK_PROXY_USER"
	caVariable       = "SPDK_PROXY_CA"
	passwordVariable = "SPDK_PROXY_PASSWORD"
)

// addTo adds these flags to a command.
func (o *callOptions) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.url, "url", "", "URL of the proxy, such as https://storage1:9009 ($"+urlVariable+", unless --socket is given)")
	f.StringVar(&o.user, "user", os.Getenv(userVariable), "user of the proxy ($SPDK_PROXY_USER)")
	f.StringVar(&o.passwordFile, "password-file", "", "file with the password in its first line")
	f.StringVar(&o.tokenFile, "token-file", "", "file with a bearer token, instead of --user")
	f.StringVar(&o.cert, "cert", "", "PEM file with a client certificate, instead of or in addition to the other credentials")
	f.StringVar(&o.key, "key", "", "PEM file with the key of --cert, if it is not in the same file")
	f.StringVar(&o.ca, "ca", "", "PEM file with the certificates to trust instead of the system's ($"+caVariable+")")
	f.BoolVar(&o.plaintext, "insecure-plaintext", false, "send credentials and calls unencrypted to a proxy on another host (http://)")
	f.StringVar(&o.socket, "socket", "", "path of the target's socket, instead of a proxy")
}

func (o callOptions) call(ctx context.Context, method string, args []string) (json.RawMessage, error) {
	schema := rpcschema.Default()
	m, err := schema.Find(method, rpcschema.Release{})
	if method == discoverMethod {
		m, err = &rpcschema.Method{Name: method}, nil // a method that the schema does not list
	}
	if err != nil {
		return nil, usageError{err}
	}
	params, err := parseParams(m, schema, args)
	if err != nil {
		return nil, err
	}
	caller, err := o.caller()
	if err != nil {
		return nil, err
	}
	defer func() { _ = caller.Close() }()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if o.socket != "" && method != discoverMethod {
		// A proxy translates and validates calls. Without a proxy, this command must do both.
		release, err := spdkrpc.NewClient(caller).Release(ctx)
		if err != nil {
			return nil, err
		}
		if params, _, err = m.Translate(params, release); err != nil {
			return nil, usage("%s: %w", method, err)
		}
		if err := schema.ValidateParams(m.Name, params, release); err != nil {
			return nil, usage("%s: %w", method, err)
		}
	}
	var argument any
	if params != nil {
		argument = params
	}
	var result json.RawMessage
	err = caller.Call(ctx, m.Name, argument, &result)
	var untrusted *tls.CertificateVerificationError
	var wrongHost x509.HostnameError
	switch {
	case errors.As(err, &wrongHost):
		err = fmt.Errorf("%w: %s", err, adviceFor(wrongHost))
	case errors.As(err, &untrusted):
		err = fmt.Errorf("%w: set --ca or $%s to the file with the proxy's certificate authority; a self-signed certificate is tls.crt in the proxy's tls.self_signed_dir", err, caVariable)
	default:
		err = explained(m, err)
	}
	return result, err
}

// explained adds the schema's explanation of the code that SPDK returned, as the console does.
// Codes up to -1000 are JSON-RPC's and the proxy's: their messages need no explanation.
func explained(m *rpcschema.Method, err error) error {
	var answered *spdkrpc.Error
	if !errors.As(err, &answered) || answered.Code >= 0 || answered.Code <= -1000 {
		return err
	}
	for _, e := range m.Errors {
		if e.Code == answered.Code {
			return fmt.Errorf("%w: %s", err, e.Message)
		}
	}
	return err
}

// adviceFor returns advice for a URL whose host name or address is not in the proxy's certificate.
func adviceFor(err x509.HostnameError) string {
	names := slices.Clone(err.Certificate.DNSNames)
	for _, ip := range err.Certificate.IPAddresses {
		names = append(names, ip.String())
	}
	instead := fmt.Sprintf("give the proxy a certificate for %s (tls.cert_file)", err.Host)
	if len(names) == 0 {
		return "the certificate has no names or addresses (subject alternative names): " + instead
	}
	return fmt.Sprintf("the names and addresses in the certificate are %s: use one of them in --url or $%s, or %s", strings.Join(names, ", "), urlVariable, instead)
}

// A closer is a Caller whose connection can be closed.
type closer interface {
	spdkrpc.Caller
	Close() error
}

func (o callOptions) caller() (closer, error) {
	if o.socket == "" && !o.explicit {
		o.url = cmp.Or(o.url, os.Getenv(urlVariable))
	}
	if (o.socket == "") == (o.url == "") {
		return nil, usage("give either --url of a proxy or --socket of a target")
	}
	if o.socket != "" {
		return spdkrpc.NewSocket(o.socket), nil
	}
	user := o.user
	if !o.explicit && (o.tokenFile != "" || o.cert != "") && user == os.Getenv(userVariable) {
		user = "" // the command line takes precedence over the environment
	}
	switch {
	case user == "" && o.tokenFile == "" && o.cert == "":
		return nil, usage("give --user of the proxy, --token-file, or --cert and --key")
	case o.tokenFile != "" && (user != "" || o.passwordFile != ""):
		return nil, usage("give either --token-file or --user with a password")
	}
	if err := o.checkEncrypted(); err != nil {
		return nil, err
	}
	config := spdkrpc.HTTPSConfig{URL: o.url, Username: user, TokenFile: o.tokenFile, CertFile: o.cert, KeyFile: cmp.Or(o.key, o.cert), Timeout: o.timeout, NoStream: !o.streams}
	var err error
	if config.CA, err = o.trusted(); err != nil {
		return nil, err
	}
	if user != "" {
		if config.Password, err = o.password(); err != nil {
			return nil, err
		}
	}
	caller, err := spdkrpc.NewHTTPS(config)
	if err != nil {
		return nil, usageError{err}
	}
	return caller, nil
}

// checkEncrypted returns an error if the credentials would cross the network unencrypted.
func (o callOptions) checkEncrypted() error {
	u, err := url.Parse(o.url)
	if err != nil || u.Scheme != "http" || o.plaintext {
		return nil // NewHTTPS reports the invalid URL
	}
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback() {
		return nil
	}
	return usage("refusing to send credentials unencrypted to %s: use https://, or %s if no other host can read or change this network's traffic. Nothing was sent", host, o.option("--insecure-plaintext", "insecure_plaintext: true"))
}

// begin returns a caller, and a context that a signal cancels. The command must call end when it
// finishes.
func (o callOptions) begin(cmd *cobra.Command) (ctx context.Context, caller closer, end func(), err error) {
	if caller, err = o.caller(); err != nil {
		return nil, nil, nil, err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	return ctx, caller, func() {
		stop()
		_ = caller.Close()
	}, nil
}

// option returns the name of an option for error messages: the flag or, for a file that lists
// servers, the key.
func (o callOptions) option(flag, key string) string {
	if o.explicit {
		return key
	}
	return flag
}

func (o callOptions) trusted() (*x509.CertPool, error) {
	file, name := o.ca, o.option("--ca", "ca_file")
	if file == "" && !o.explicit {
		file, name = os.Getenv(caVariable), "$"+caVariable
	}
	if file == "" {
		return nil, nil // nil selects the system's certificate authorities
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, usage("%s: %w", name, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, usage("%s: there is no PEM certificate in %s", name, file)
	}
	return pool, nil
}

func (o callOptions) password() (string, error) {
	if o.passwordFile != "" {
		f, err := os.Open(o.passwordFile)
		if err != nil {
			return "", usage("%s: %w", o.option("--password-file", "password_file"), err)
		}
		defer func() { _ = f.Close() }()
		return firstLine(f)
	}
	if password, ok := os.LookupEnv(passwordVariable); ok {
		return password, nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return "", usageError{errors.New("specify the password with --password-file or $" + passwordVariable)}
	}
	return ask(os.Stdin, os.Stderr, fmt.Sprintf("Password of %s: ", o.user))
}
