// Command sbom writes a software bill of materials (CycloneDX 1.5, JSON) beside
// each binary, from the build info in the binary itself: what is linked in, not
// what go.mod could need.
//
//	go run ./.ci/sbom BINARY...
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	Purl       string     `json:"purl,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./.ci/sbom BINARY...")
		os.Exit(2)
	}
	for _, path := range os.Args[1:] {
		n, err := write(path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
		fmt.Printf("%s.sbom.json: %d modules\n", path, n)
	}
}

func write(path string) (modules int, err error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return 0, err
	}
	b := bom{
		Format: "CycloneDX", Spec: "1.5", Version: 1,
		Metadata:   metadata{component{Type: "application", Name: filepath.Base(path), Version: info.Main.Version, Purl: purl(info.Main)}},
		Components: []component{{Type: "platform", Name: "go", Version: strings.TrimPrefix(info.GoVersion, "go")}},
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		b.Components = append(b.Components, component{
			Type: "library", Name: m.Path, Version: m.Version, Purl: purl(*m),
			Properties: []property{{"go:sum", m.Sum}},
		})
	}
	if len(info.Deps) == 0 {
		return 0, errors.New("names no modules: not built with modules, or stripped of its build info")
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return 0, err
	}
	return len(info.Deps), os.WriteFile(path+".sbom.json", append(text, '\n'), 0o644)
}

// purl names a module as https://github.com/package-url/purl-spec asks.
func purl(m debug.Module) string {
	if m.Version == "" || m.Version == "(devel)" {
		return "pkg:golang/" + m.Path
	}
	return "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
}
