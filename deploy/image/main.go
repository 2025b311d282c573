// Command image builds the container images of spdk-csi and spdk-proxy for amd64 and arm64, without
// a container engine, base images or root. An image contains the program and, for spdk-csi,
// unpacked Debian packages, whose versions and digests are in packages.lock. The result depends
// only on the source, the lock and $SOURCE_DATE_EPOCH, so anyone can build it again and compare the
// digests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// architectures lists the supported architectures. Their names are the same in Debian and Go.
var architectures = []string{"amd64", "arm64"}

// A recipe describes what an image contains and how it starts.
type recipe struct {
	program     string
	description string
	// packages lists the Debian packages whose programs run in the container; packages.lock also
	// contains their dependencies.
	packages []string
	// files maps paths of files in the repository to their paths in the image.
	files [][2]string
	cmd   []string
	ports []string
}

var recipes = []recipe{
	{
		program: "spdk-csi", description: "CSI driver for SPDK logical volumes over NVMe-oF and iSCSI",
		packages: []string{"btrfs-progs", "ca-certificates", "cryptsetup-bin", "e2fsprogs", "kmod", "libgcc-s1", "mount", "util-linux", "xfsprogs", "base-files", "coreutils", "dash"},
		files:    [][2]string{{"deploy/image/iscsiadm", "usr/local/sbin/iscsiadm"}},
	},
	{
		program: "spdk-proxy", description: "Authenticated HTTPS in front of SPDK's JSON-RPC socket",
		packages: []string{"ca-certificates", "base-files"},
		cmd:      []string{"serve"}, ports: []string{"9009/tcp"},
	},
}

type options struct {
	out, version, revision, lock string
	programs, architectures      []string
	created                      time.Time
	update                       bool
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "bin/images", "directory to write to")
	flag.StringVar(&o.version, "version", "dev", "version of the programs")
	flag.StringVar(&o.revision, "revision", "unknown", "commit of the source")
	flag.StringVar(&o.lock, "lock", lockFile, "file that names the compiler and Debian's packages")
	flag.BoolVar(&o.update, "update-lock", false, "write the lock with Debian's current packages, and build nothing")
	programs := flag.String("programs", "spdk-csi,spdk-proxy", "programs to build images of")
	archs := flag.String("architectures", strings.Join(architectures, ","), "architectures to build images for")
	flag.Parse()
	o.programs, o.architectures = strings.Split(*programs, ","), strings.Split(*archs, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.update {
		return updateLock(ctx, o)
	}
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return errors.New("SOURCE_DATE_EPOCH is not set to a number of seconds: use make images, or set it to the time of the commit")
	}
	o.created = time.Unix(epoch, 0).UTC()
	lock, err := readLock(o.lock)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, r := range recipes {
		if !slices.Contains(o.programs, r.program) {
			continue
		}
		archive := filepath.Join(o.out, r.program+".oci.tar")
		digest, err := build(ctx, r, lock, o, archive)
		if err != nil {
			return fmt.Errorf("%s: %w", r.program, err)
		}
		fmt.Printf("%s %s\n", digest, archive)
	}
	return nil
}

// check rejects programs and architectures that have no images.
func (o options) check() error {
	for _, p := range o.programs {
		if !slices.ContainsFunc(recipes, func(r recipe) bool { return r.program == p }) {
			return fmt.Errorf("-programs: there is no image for %q: name spdk-csi, spdk-proxy or both", p)
		}
	}
	for _, a := range o.architectures {
		if !slices.Contains(architectures, a) {
			return fmt.Errorf("-architectures: %q is not one of %s", a, strings.Join(architectures, ", "))
		}
	}
	return nil
}

// build writes the image for the chosen architectures, and a list of contents (SPDX) for each
// architecture. It returns the image's digest.
func build(ctx context.Context, r recipe, lock lock, o options, archive string) (string, error) {
	var images []v1.Image
	for _, arch := range o.architectures {
		program := filepath.Join(o.out, r.program+"-"+arch)
		if err := compile(ctx, r.program, arch, lock.goVersion, o.version, program); err != nil {
			return "", err
		}
		base, err := unpackAll(ctx, lock, r, arch)
		if err != nil {
			return "", err
		}
		top, err := programLayer(r, program)
		if err != nil {
			return "", err
		}
		image, err := newImage(r, arch, o, base, top)
		if err != nil {
			return "", err
		}
		images = append(images, image)
		digest, err := image.Digest()
		if err != nil {
			return "", err
		}
		if err := writeSBOM(r, arch, o, lock, program, digest.String()); err != nil {
			return "", err
		}
	}
	return writeImages(archive, images, reference(r.program, o.version), o.created)
}

// reference returns the image's name in the manifests, with the version as its tag. A tag must not
// contain + or ~.
func reference(program, version string) string {
	return "ghcr.io/spdkgate/" + program + ":" + strings.NewReplacer("+", "-", "~", "-").Replace(version)
}
