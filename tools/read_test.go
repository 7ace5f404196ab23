package tools

import (
	"fmt"
	"strings"
	"testing"
)

// TestReadCountsNoLineAfterTheLastNewline: what fits whole comes whole (R1),
// and the notice counts as pi does when something is left.
func TestReadCountsNoLineAfterTheLastNewline(t *testing.T) {
	w := openTest(t, nil)
	makeFiles(t, w.dir, map[string]string{"2000": numbers(1, 2000), "2001": numbers(1, 2001), "3": "1\n2\n3\n", "open": "1\n2\n3"})
	for _, c := range []struct {
		path          string
		offset, limit int
		want          string
	}{
		{"2000", 1, 0, numbers(1, 2000)},
		{"2001", 1, 0, strings.TrimSuffix(numbers(1, 2000), "\n") + "\n\n[Showing lines 1-2000 of 2002. Use offset=2001 to continue.]"},
		{"2001", 2, 0, numbers(2, 2001)},
		{"2001", 2001, 5, "2001\n"},
		{"3", 1, 2, "1\n2\n\n[2 more lines in file. Use offset=3 to continue.]"},
		{"3", 2, 2, "2\n3\n"},
		{"3", 4, 1, ""},
		{"3", 1, 4, "1\n2\n3\n"},
		{"open", 1, 2, "1\n2\n\n[1 more lines in file. Use offset=3 to continue.]"},
		{"open", 3, 1, "3"},
	} {
		args := map[string]any{"path": c.path, "offset": c.offset}
		if c.limit > 0 {
			args["limit"] = c.limit
		}
		if text, failed := call(t, w, "read", args); failed || text != c.want {
			t.Errorf("%+v: got %s", c.want[:min(20, len(c.want))], fmt.Sprintf("%.200q … %q", text, text[max(0, len(text)-80):]))
		}
	}
}

// TestReadBoundsTheFile: beyond the limit nothing is read, and the result says
// so.
func TestReadBoundsTheFile(t *testing.T) {
	w := openTest(t, &Options{Limits: Limits{ReadBytes: 10}})
	makeFiles(t, w.dir, map[string]string{"f": "1234\n6789\nabc\n"})
	if text, failed := call(t, w, "read", map[string]any{"path": "f"}); failed || text != "1234\n6789\n\n\n[The file has 14B, only the first 10B are read and counted]" {
		t.Errorf("got %q", text)
	}
	if text, failed := call(t, w, "edit", map[string]any{"path": "f", "edits": []oneEdit{{"abc", "x"}}}); !failed || !strings.Contains(text, "over the limit of 10B") {
		t.Errorf("got %q", text)
	}
}
