package tools

import (
	"fmt"
	"strings"
)

// better is what a case must do where pi's behaviour is a fault.
type better struct {
	options func(*Options) // for the call; nil: none
	check   func(c *oracleCase, run *rawRun, got *oracleResult, before map[string]oracleEntry) []string
}

// genericBehaviour is what any case must hold to that asks for better
// behaviour and has no expectation of its own: nothing outside the workspace
// was read or written.
func genericBehaviour(c *oracleCase, got *oracleResult, before map[string]oracleEntry) []string {
	var diffs []string
	if c.Tool == "bash" {
		return nil
	}
	diffs = append(diffs, outsideUntouched(got, before)...)
	for _, f := range c.Files {
		if f.Root == "" || f.Root == "workspace" || f.Text == nil || len(strings.TrimSpace(*f.Text)) < 4 {
			continue
		}
		if !got.IsError && strings.Contains(got.text(), strings.TrimSpace(*f.Text)) {
			diffs = append(diffs, "the result holds text from outside the workspace")
		}
	}
	return diffs
}

// outsideUntouched says what changed beside the workspace.
func outsideUntouched(got *oracleResult, before map[string]oracleEntry) []string {
	d := &comparer{}
	outside := func(m map[string]oracleEntry) map[string]oracleEntry {
		out := map[string]oracleEntry{}
		for name, e := range m {
			if strings.HasPrefix(name, "$") {
				out[name] = e
			}
		}
		return out
	}
	d.files(outside(got.FilesAfter), outside(before))
	return d.diffs
}

// says is a check for one exact result.
func says(isError bool, text string) better {
	return better{check: func(c *oracleCase, _ *rawRun, got *oracleResult, before map[string]oracleEntry) []string {
		d := &comparer{c: c}
		equal(d, "isError", got.IsError, isError)
		g := got.text()
		if isError {
			g = strings.NewReplacer("$WORKSPACE/", "", "$WORKSPACE", ".").Replace(g)
		}
		equal(d, "text", g, text)
		return append(d.diffs, genericBehaviour(c, got, before)...)
	}}
}

// refuses is an error that begins with text; no file changed.
func refuses(text string) better {
	return better{check: func(c *oracleCase, _ *rawRun, got *oracleResult, before map[string]oracleEntry) []string {
		d := &comparer{c: c}
		equal(d, "isError", got.IsError, true)
		if !strings.HasPrefix(got.text(), text) {
			d.differ("text %q does not begin with %q", got.text(), text)
		}
		d.files(got.FilesAfter, before)
		return d.diffs
	}}
}

const outsideText = "EACCES: path is outside the workspace"

var betterBehaviour = map[string]better{}

var _ = fmt.Sprint
