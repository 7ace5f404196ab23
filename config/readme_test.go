package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of the README anew")

const (
	tableBegin = "<!-- configuration: written by make readme -->\n"
	tableEnd   = "<!-- end of configuration -->\n"
)

// table is the configuration as the README shows it.
func table() string {
	var b strings.Builder
	b.WriteString("| key | default | flag | meaning |\n| --- | --- | --- | --- |\n")
	for _, k := range Keys() {
		name, flagName, meaning := strings.TrimPrefix(k.Name, "agents.<name>."), "", k.Doc
		if name != k.Name {
			name = "agents.*." + name
		}
		if k.Flag != "" {
			flagName = "`--" + k.Flag + "`"
		}
		if values, ok := strings.CutPrefix(k.Allowed, "one of "); ok {
			meaning += " (" + values + ")"
		}
		def := ""
		if k.Default != "" {
			def = "`" + k.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, def, flagName, meaning)
	}
	return b.String()
}

func TestReadmeTable(t *testing.T) {
	const path = "../README.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	old, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatal("README.md has no marks for the table")
	}
	want := "\n" + table() + "\n"
	if old == want {
		return
	}
	if !*update {
		t.Fatal("the table in README.md is not that of the code; run make readme")
	}
	if err := os.WriteFile(path, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
