// Command sbom writes the software bill of materials of a Go binary to standard output, as CycloneDX JSON. It lists the modules
// that the Go linker recorded in the binary, with their checksums, and the Go standard library. It is a separate module, so that
// its dependencies do not become dependencies of the server.
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY VERSION")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "sbom: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func write(path, version string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	app := component(&debug.Module{Path: info.Main.Path, Version: version}, cyclonedx.ComponentTypeApplication)
	components := []cyclonedx.Component{
		component(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}, cyclonedx.ComponentTypeLibrary),
	}
	for _, module := range info.Deps {
		components = append(components, component(cmp.Or(module.Replace, module), cyclonedx.ComponentTypeLibrary))
	}
	refs := make([]string, len(components))
	for i := range components {
		refs[i] = components[i].BOMRef
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &app}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: app.BOMRef, Dependencies: &refs}}
	return cyclonedx.NewBOMEncoder(os.Stdout, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// component describes a module. The hash is the module's hash in go.sum, which covers all files of the module.
func component(module *debug.Module, kind cyclonedx.ComponentType) cyclonedx.Component {
	purl := "pkg:golang/" + module.Path + "@" + module.Version
	c := cyclonedx.Component{BOMRef: purl, Type: kind, Name: module.Path, Version: module.Version, PackageURL: purl}
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:")); err == nil && len(sum) == 32 {
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c
}
