package main

import (
	"os"
	"strings"
	"testing"
)

func TestReadmeHasTheExitCodes(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := writeExitCodesMarkdown(&table); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "<!-- exit codes -->\n\n"+table.String()+"\n<!-- end of exit codes -->") {
		t.Error("the table in README.md is not that of the code; put the output of pi-cli exit-codes --markdown there")
	}
}
