package tools

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestOutputTailIsExact holds the collector to a plain computation over the
// whole text, however it is cut into pieces.
func TestOutputTailIsExact(t *testing.T) {
	w := openTest(t, nil)
	long := strings.Repeat("é", 60_000)
	for name, text := range map[string]string{
		"short": "a\nb", "empty": "", "long last line and newline": "first\n" + long + "\n",
		"many lines": numbers(1, 5000), "2000 lines, unfinished": numbers(1, 2000) + "x", "long": long,
		"long lines": strings.Repeat(strings.Repeat("x", 30_000)+"\n", 5),
	} {
		for _, size := range []int{1, 7, 4096, 1 << 20} {
			if size == 1 && len(text) > 100_000 {
				continue
			}
			o := &output{w: w}
			for b := []byte(text); len(b) > 0; b = b[min(size, len(b)):] {
				o.add(b[:min(size, len(b))], false)
			}
			o.add(nil, true)
			o.close()
			checkTail(t, name, text, o)
		}
	}
}

// TestOldOutputsGo: a workspace keeps the newest outputs only.
func TestOldOutputsGo(t *testing.T) {
	w := openTest(t, nil)
	var last string
	for range maxOutputs + 3 {
		o := &output{w: w}
		o.add([]byte(numbers(1, 2001)), true)
		o.close()
		last = o.filePath
	}
	names, err := filepath.Glob(w.dir + "/" + privateDir + "/output/*")
	if err != nil || len(names) != maxOutputs {
		t.Errorf("%d outputs are kept, %v", len(names), err)
	}
	if _, err := w.root.Stat(last); err != nil {
		t.Error(err)
	}
}

func checkTail(t *testing.T, name, text string, o *output) {
	t.Helper()
	tr := o.truncate()
	lines := strings.Count(text, "\n")
	if !strings.HasSuffix(text, "\n") && text != "" {
		lines++
	}
	if short := len(text) <= maxBytes && lines <= maxLines; short != (tr == nil) {
		t.Errorf("%s: truncated=%v", name, tr != nil)
		return
	} else if short {
		if string(o.tail) != text {
			t.Errorf("%s: the text changed", name)
		}
		return
	}
	if !strings.HasSuffix(text, tr.Content) || tr.TotalBytes != len(text) || tr.TotalLines != strings.Count(text, "\n")+1 ||
		len(tr.Content) > maxBytes || len(tr.Content) < maxBytes-30_001 && tr.OutputLines < maxLines {
		t.Errorf("%s: %d bytes of %d kept, %d lines of %d", name, len(tr.Content), tr.TotalBytes, tr.OutputLines, tr.TotalLines)
	}
	whole, err := o.w.root.ReadFile(o.filePath)
	if err != nil || string(whole) != text {
		t.Errorf("%s: the file has %d bytes, %v", name, len(whole), err)
	}
}
