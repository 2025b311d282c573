package main

import (
	"github.com/spf13/pflag"

	"github.com/spdkgate/spdkgate/proxy/service"
)

// instance is a flag that selects one of the proxy services on a host.
type instance struct{ service.Instance }

func (i *instance) addTo(flags *pflag.FlagSet) {
	flags.Var(i, "instance", "NAME of spdk-proxy@NAME.service (default: spdk-proxy.service)")
}

func (i *instance) String() string { return string(i.Instance) }

// Set implements pflag.Value.
func (i *instance) Set(name string) (err error) {
	i.Instance, err = service.ParseInstance(name)
	return err
}

// Type implements pflag.Value.
func (i *instance) Type() string { return "NAME" }
