package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spdx/tools-golang/spdx"
)

// escape escapes versions in package URLs.
var escape = strings.NewReplacer("+", "%2B", ":", "%3A")

// writeSBOM writes PROGRAM-ARCH.spdx.json, which lists the contents of the image with this digest.
func writeSBOM(r recipe, arch string, o options, l lock, program, imageDigest string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	packages, err := l.of(r, arch)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(listContents(r, arch, o, info, packages, imageDigest), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, r.program+"-"+arch+".spdx.json"), append(text, '\n'), 0o644)
}

// listContents lists the program's Go modules and the Debian packages.
func listContents(r recipe, arch string, o options, info *buildinfo.BuildInfo, packages []debian, imageDigest string) *spdx.Document {
	const none = "NOASSERTION"
	d := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: r.program + "-" + arch,
		DocumentNamespace: fmt.Sprintf("https://github.com/spdkgate/spdkgate/sbom/%s/%s/%s", r.program, arch, imageDigest),
		CreationInfo:      &spdx.CreationInfo{Created: o.created.Format(time.RFC3339), Creators: []spdx.Creator{{CreatorType: "Tool", Creator: "spdkgate-deploy-image"}}},
	}
	relate := func(a spdx.ElementID, relationship string, b spdx.ElementID) {
		d.Relationships = append(d.Relationships, &spdx.Relationship{RefA: spdx.DocElementID{ElementRefID: a}, Relationship: relationship, RefB: spdx.DocElementID{ElementRefID: b}})
	}
	add := func(p spdx.Package, purl string) {
		p.PackageLicenseConcluded, p.PackageCopyrightText = none, none
		if p.PackageLicenseDeclared == "" {
			p.PackageLicenseDeclared = none
		}
		if p.PackageDownloadLocation == "" {
			p.PackageDownloadLocation = none
		}
		p.PackageExternalReferences = []*spdx.PackageExternalReference{{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: purl}}
		if len(d.Packages) == 0 {
			p.PackageSPDXIdentifier = "Image"
			relate("DOCUMENT", "DESCRIBES", "Image")
		} else {
			p.PackageSPDXIdentifier = spdx.ElementID(fmt.Sprintf("Package-%d", len(d.Packages)))
			relate("Image", "CONTAINS", p.PackageSPDXIdentifier)
		}
		d.Packages = append(d.Packages, &p)
	}
	add(spdx.Package{PackageName: r.program, PackageVersion: o.version, PackageLicenseDeclared: "Apache-2.0"}, "pkg:oci/"+r.program+"@"+imageDigest+"?arch="+arch)
	add(spdx.Package{PackageName: "stdlib", PackageVersion: info.GoVersion}, "pkg:golang/stdlib@"+info.GoVersion)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add(spdx.Package{PackageName: m.Path, PackageVersion: m.Version}, "pkg:golang/"+m.Path+"@"+escape.Replace(m.Version))
	}
	for _, p := range packages {
		add(spdx.Package{
			PackageName: p.name, PackageVersion: p.version, PackageDownloadLocation: mirror + p.path,
			PackageChecksums: []spdx.Checksum{{Algorithm: spdx.SHA256, Value: p.sha256}},
		}, "pkg:deb/debian/"+p.name+"@"+escape.Replace(p.version)+"?arch="+p.arch+"&distro=debian-12")
	}
	return d
}
