package worker

import (
	"context"
	"slices"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
)

type namedTool string

func (t namedTool) Spec() loop.ToolSpec { return loop.ToolSpec{Name: string(t)} }

func (namedTool) Execute(context.Context, loop.Call, func(loop.ToolResult)) (loop.ToolResult, error) {
	return loop.ToolResult{}, nil
}

// TestToolsAreSentSorted: two workers whose profiles name the same tools in
// another order send the same bytes.
func TestToolsAreSentSorted(t *testing.T) {
	given := []loop.Tool{namedTool("write"), namedTool("bash"), namedTool("read")}
	var names []string
	for _, tool := range guardTools(given, nil, nil, masker{}) {
		names = append(names, tool.Spec().Name)
	}
	if want := []string{"bash", "read", "write"}; !slices.Equal(names, want) {
		t.Errorf("tools %v, want %v", names, want)
	}
	if guardTools(nil, nil, nil, masker{}) != nil {
		t.Error("no list of tools became an empty one")
	}
}
