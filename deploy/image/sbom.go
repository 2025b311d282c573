package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The members of SPDX 2.3 that a list of packages has.
type (
	spdxDocument struct {
		SPDXVersion       string             `json:"spdxVersion"`
		DataLicense       string             `json:"dataLicense"`
		SPDXID            string             `json:"SPDXID"`
		Name              string             `json:"name"`
		DocumentNamespace string             `json:"documentNamespace"`
		CreationInfo      spdxCreation       `json:"creationInfo"`
		Packages          []spdxPackage      `json:"packages"`
		Relationships     []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		SPDXID           string          `json:"SPDXID"`
		Name             string          `json:"name"`
		VersionInfo      string          `json:"versionInfo"`
		DownloadLocation string          `json:"downloadLocation"`
		FilesAnalyzed    bool            `json:"filesAnalyzed"`
		LicenseConcluded string          `json:"licenseConcluded"`
		LicenseDeclared  string          `json:"licenseDeclared"`
		CopyrightText    string          `json:"copyrightText"`
		Checksums        []spdxChecksum  `json:"checksums,omitempty"`
		ExternalRefs     []spdxReference `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm     string `json:"algorithm"`
		ChecksumValue string `json:"checksumValue"`
	}
	spdxReference struct {
		ReferenceCategory string `json:"referenceCategory"`
		ReferenceType     string `json:"referenceType"`
		ReferenceLocator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		SPDXElementID      string `json:"spdxElementId"`
		RelationshipType   string `json:"relationshipType"`
		RelatedSPDXElement string `json:"relatedSpdxElement"`
	}
)

// escape escapes versions in package URLs.
var escape = strings.NewReplacer("+", "%2B", ":", "%3A")

// writeSBOM writes PROGRAM-ARCH.spdx.json, the list of what is in the image with this digest.
func writeSBOM(r recipe, arch string, o options, l lock, program, imageDigest string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	packages, err := l.closure(arch, r.packages)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(listContents(r, arch, o, info, packages, imageDigest), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, r.program+"-"+arch+".spdx.json"), append(text, '\n'), 0o644)
}

// listContents lists the Go modules of the program and the Debian packages.
func listContents(r recipe, arch string, o options, info *buildinfo.BuildInfo, packages []debian, imageDigest string) spdxDocument {
	const none = "NOASSERTION"
	d := spdxDocument{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", Name: r.program + "-" + arch,
		DocumentNamespace: fmt.Sprintf("https://github.com/spdkgate/spdkgate/sbom/%s/%s/%s", r.program, arch, imageDigest),
		CreationInfo:      spdxCreation{Created: o.created.Format(time.RFC3339), Creators: []string{"Tool: spdkgate-deploy-image"}},
		Relationships:     []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image"}},
	}
	add := func(p spdxPackage) {
		p.LicenseConcluded, p.CopyrightText = none, none
		if p.LicenseDeclared == "" {
			p.LicenseDeclared = none
		}
		if p.DownloadLocation == "" {
			p.DownloadLocation = none
		}
		if len(d.Packages) > 0 {
			p.SPDXID = fmt.Sprintf("SPDXRef-Package-%d", len(d.Packages))
			d.Relationships = append(d.Relationships, spdxRelationship{"SPDXRef-Image", "CONTAINS", p.SPDXID})
		}
		d.Packages = append(d.Packages, p)
	}
	purl := func(locator string) []spdxReference {
		return []spdxReference{{"PACKAGE-MANAGER", "purl", locator}}
	}
	add(spdxPackage{SPDXID: "SPDXRef-Image", Name: r.program, VersionInfo: o.version, LicenseDeclared: "Apache-2.0", ExternalRefs: purl("pkg:oci/" + r.program + "@" + imageDigest + "?arch=" + arch)})
	add(spdxPackage{Name: "stdlib", VersionInfo: info.GoVersion, ExternalRefs: purl("pkg:golang/stdlib@" + info.GoVersion)})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		add(spdxPackage{Name: m.Path, VersionInfo: m.Version, ExternalRefs: purl("pkg:golang/" + m.Path + "@" + escape.Replace(m.Version))})
	}
	for _, p := range packages {
		add(spdxPackage{
			Name: p.name, VersionInfo: p.version, DownloadLocation: mirror + p.path, Checksums: []spdxChecksum{{"SHA256", p.sha256}},
			ExternalRefs: purl("pkg:deb/debian/" + p.name + "@" + escape.Replace(p.version) + "?arch=" + p.arch + "&distro=debian-12"),
		})
	}
	return d
}
