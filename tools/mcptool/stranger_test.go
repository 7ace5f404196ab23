package mcptool_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/tools/mcptool"
)

// The SDK's own example server is a program that was not written for this
// test: names with blanks and brackets, icons, links, prompts, and a log of
// every message on stderr.
func TestStrangersServerWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("go is not installed")
	}
	program := filepath.Join(t.TempDir(), "everything")
	out, err := exec.Command(goTool, "build", "-o", program, "github.com/modelcontextprotocol/go-sdk/examples/server/everything").CombinedOutput()
	if err != nil {
		t.Fatalf("building the stranger's server: %v\n%s", err, out)
	}
	set := open(t, mcptool.Config{Servers: []mcptool.Server{{Name: "any", Command: program}}})
	if res := call(t, set, "any_greet", `{"name":"Ada"}`); res.IsError || !strings.Contains(text(res), "Ada") {
		t.Errorf("greeting: %q, error %v", text(res), res.IsError)
	}
	res := call(t, set, "any_greet__structured_", `{"name":"Ada"}`)
	if res.IsError || !strings.Contains(string(res.Details), `"structuredContent":{`) || !strings.Contains(string(res.Details), "Ada") {
		t.Errorf("structured greeting: %q, details %s", text(res), res.Details)
	}
	list, _ := set.Tools("any_*")
	if len(list) < 8 {
		t.Errorf("%d tools", len(list))
	}
}
