package main

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// The pages are written by a test, so that the program does not carry what
// writes them.
var manDir = flag.String("man", "", "folder for the man pages; none means a temporary one")

// Every command that the help shows has a man page with its flags.
func TestManPageForEachCommand(t *testing.T) {
	dir := *manDir
	if dir == "" {
		dir = t.TempDir()
	}
	root := newRoot(io.Discard, io.Discard)
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, &doc.GenManHeader{Source: "pi-worker"}, dir); err != nil {
		t.Fatal(err)
	}
	pages := checkManPage(t, dir, root)
	if pages < 5 {
		t.Errorf("only %d pages", pages)
	}
}

// checkManPage looks at the page of a command and of all below it, and counts.
func checkManPage(t *testing.T, dir string, cmd *cobra.Command) int {
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
	page, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Error(err)
		return 0
	}
	text := strings.ReplaceAll(string(page), `\-`, "-")
	if !strings.Contains(text, cmd.Short) {
		t.Errorf("%s does not say %q", name, cmd.Short)
	}
	for _, word := range strings.Fields(cmd.LocalNonPersistentFlags().FlagUsages()) {
		if strings.HasPrefix(word, "--") && !strings.Contains(text, word) {
			t.Errorf("%s does not mention %s", name, word)
		}
	}
	pages := 1
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand() {
			pages += checkManPage(t, dir, sub)
		}
	}
	return pages
}
