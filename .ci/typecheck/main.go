// Command typecheck reads packages as they are for another system and reports
// what would not compile there. It reads all sources but generates no code, so
// that a system costs seconds where a build costs minutes.
//
//	go run -modfile=.ci/tools/go.mod ./.ci/typecheck -for windows/amd64,darwin/arm64 ./cmd/...
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/tools/go/packages"
)

func main() {
	systems := flag.String("for", "windows/amd64,darwin/arm64", "systems, with commas")
	flag.Parse()
	bad := 0
	for system := range strings.SplitSeq(*systems, ",") {
		begun := time.Now()
		n, errs := check(system, flag.Args())
		bad += errs
		fmt.Printf("%s: %d packages, %d errors, %.0f s\n", system, n, errs, time.Since(begun).Seconds())
	}
	if bad > 0 {
		os.Exit(1)
	}
}

// check reads the packages and all that they import.
func check(system string, patterns []string) (read, errs int) {
	goos, goarch, _ := strings.Cut(system, "/")
	roots, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax,
		Env:  append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch),
		// The modules are those of go.mod, not of the tools' own file.
		BuildFlags: []string{"-modfile=go.mod"},
	}, patterns...)
	if err != nil {
		fmt.Fprintln(os.Stderr, system+":", err)
		return 0, 1
	}
	packages.Visit(roots, nil, func(p *packages.Package) {
		read++
		for _, e := range p.Errors {
			errs++
			fmt.Fprintln(os.Stderr, system+":", e)
		}
	})
	if len(roots) == 0 || read < 100 {
		fmt.Fprintf(os.Stderr, "%s: only %d packages were read\n", system, read)
		errs++
	}
	return read, errs
}
