// Backuptool replaces both example programs of external-snapshot-metadata, depending on the name
// under which it is started: snapshot-metadata-lister prints the blocks of a snapshot, and
// snapshot-metadata-verifier copies them from one device to another and compares the two. The
// modules of these programs are not available from the module proxy, but the package iterator,
// which does the actual work, is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubernetes-csi/external-snapshot-metadata/pkg/iterator"
	"k8s.io/client-go/rest"
)

const verifier = "snapshot-metadata-verifier"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	var (
		args           iterator.Args
		source, target string
		maxResults     int
	)
	text := func(value *string, long, short, usage string) {
		flag.StringVar(value, long, "", usage)
		flag.StringVar(value, short, "", usage)
	}
	text(&args.Namespace, "namespace", "n", "namespace of the snapshots")
	text(&args.SnapshotName, "snapshot", "s", "VolumeSnapshot")
	text(&args.PrevSnapshotName, "previous-snapshot", "p", "VolumeSnapshot taken before it")
	text(&args.PrevSnapshotID, "previous-snapshot-id", "P", "handle of a snapshot taken before it")
	flag.StringVar(&args.CSIDriver, "csi-driver", "", "SnapshotMetadataService; by default that of the snapshot's driver, which is looked up")
	text(&source, "source-device-path", "src", "device with the content of the snapshot")
	text(&target, "target-device-path", "tgt", "device with the content of the previous snapshot")
	flag.String("kubeconfig", "", "ignored: the program runs in a pod")
	flag.Int64Var(&args.StartingOffset, "starting-offset", 0, "first byte")
	flag.IntVar(&maxResults, "max-results", 0, "blocks in each record")
	flag.Parse()
	args.MaxResults = int32(maxResults)

	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	if args.Clients, err = iterator.BuildClients(config); err != nil {
		return err
	}
	args.Emitter = &iterator.TableEmitter{Writer: os.Stdout}
	if filepath.Base(os.Args[0]) == verifier {
		from, err := os.Open(source)
		if err != nil {
			return err
		}
		defer from.Close()
		to, err := os.OpenFile(target, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, to.Close()) }()
		args.Emitter = &iterator.VerifierEmitter{SourceDevice: from, TargetDevice: to}
	}
	return iterator.GetSnapshotMetadata(context.Background(), args)
}
