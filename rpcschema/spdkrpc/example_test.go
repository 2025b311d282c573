package spdkrpc_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// simulated starts a simulated target instead of a real one, with an lvstore on an in-memory disk.
func simulated() (socket string, end func()) {
	target, err := spdktest.Start(spdktest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	caller := spdkrpc.NewSocket(target.Socket())
	client := spdkrpc.NewClient(caller)
	name, store := "disk0", "lvs0"
	if _, err := client.BdevMallocCreate(context.Background(), spdkrpc.BdevMallocCreateParams{Name: &name, NumBlocks: 1 << 17, BlockSize: 4096}); err != nil {
		log.Fatal(err)
	}
	if _, err := client.BdevLvolCreateLvstore(context.Background(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: name, LvsName: store}); err != nil {
		log.Fatal(err)
	}
	return target.Socket(), func() { _, _ = caller.Close(), target.Close() }
}

// Example creates, lists and deletes a logical volume.
func Example() {
	socket, end := simulated()
	defer end()

	// A typical path is /var/tmp/spdk.sock. To call through spdk-proxy, use NewHTTPS.
	caller := spdkrpc.NewSocket(socket)
	defer func() { _ = caller.Close() }()
	client := spdkrpc.NewClient(caller)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	store, thin := "lvs0", true
	uuid, err := client.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{LvsName: &store, LvolName: "vol1", SizeInMiB: 64, ThinProvision: &thin})
	if err != nil {
		log.Fatal(err)
	}
	bdevs, err := client.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: &uuid})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bdevs[0].Aliases, bdevs[0].NumBlocks*uint64(bdevs[0].BlockSize)>>20, "MiB")
	if err := client.BdevLvolDelete(ctx, spdkrpc.BdevLvolDeleteParams{Name: uuid}); err != nil {
		log.Fatal(err)
	}
	// Output: [lvs0/vol1] 64 MiB
}

// The kind of an error determines how to react.
func ExampleKindOf() {
	socket, end := simulated()
	defer end()
	caller := spdkrpc.NewSocket(socket)
	defer func() { _ = caller.Close() }()

	err := spdkrpc.NewClient(caller).BdevLvolDelete(context.Background(), spdkrpc.BdevLvolDeleteParams{Name: "lvs0/gone"})
	switch {
	case err == nil:
		fmt.Println("deleted")
	case errors.Is(err, spdkrpc.NoSuchDevice):
		fmt.Println("it does not exist")
	case errors.Is(err, spdkrpc.OutcomeUnknown):
		fmt.Println("no response: check whether it exists before you retry")
	default:
		fmt.Println("failed:", err)
	}
	// Output: it does not exist
}
