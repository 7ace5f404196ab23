package tools

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
)

// comparer collects what differs between a result and the recorded one.
type comparer struct {
	c     *oracleCase
	diffs []string
}

func (d *comparer) differ(format string, args ...any) {
	d.diffs = append(d.diffs, fmt.Sprintf(format, args...))
}

func equal[T any](d *comparer, what string, got, want T) {
	if !reflect.DeepEqual(got, want) {
		d.differ("%s: got %s, want %s", what, short(got), short(want))
	}
}

func short(v any) string {
	s := string(mustJSON(v))
	if len(s) > 700 {
		return fmt.Sprintf("%s … %s (%d bytes)", s[:350], s[len(s)-350:], len(s))
	}
	return s
}

// compareResult holds a result against the recorded one of a match or loose
// case.
func compareResult(c *oracleCase, run *rawRun, got, want *oracleResult) []string {
	d := &comparer{c: c}
	if want.Results != nil {
		equal(d, "number of results", len(got.Results), len(want.Results))
		for i := range min(len(got.Results), len(want.Results)) {
			d.call(&got.Results[i], &want.Results[i])
		}
	} else {
		d.call(got, want)
	}
	if want.FilesAfter != nil || c.Record.Files {
		d.files(got.FilesAfter, want.FilesAfter)
	}
	if want.Survivors != nil {
		equal(d, "survivors", *got.Survivors, *want.Survivors)
	}
	if want.FullOutput != nil {
		if got.FullOutput == nil {
			d.differ("the whole output was not kept")
		} else {
			equal(d, "size of the whole output", got.FullOutput.Bytes, want.FullOutput.Bytes)
			equal(d, "SHA-256 of the whole output", got.FullOutput.SHA256, want.FullOutput.SHA256)
			equal(d, "mode of the whole output (B7)", got.FullOutput.Mode, "0600")
		}
	}
	if c.Record.TmpEntries {
		equal(d, "tmpEntries", got.TmpEntries, want.TmpEntries)
	}
	d.times(run.Took)
	return d.diffs
}

func (d *comparer) times(took time.Duration) {
	if ms := d.c.Compare.MinMs; ms > 0 && took < time.Duration(ms)*time.Millisecond {
		d.differ("took %v, want at least %d ms", took, ms)
	}
	if ms := d.c.Compare.MaxMs; ms > 0 && took > time.Duration(ms)*time.Millisecond {
		d.differ("took %v, want at most %d ms", took, ms)
	}
}

func (d *comparer) files(got, want map[string]oracleEntry) {
	for name, w := range want {
		g, ok := got[name]
		if !ok {
			d.differ("file %q is missing", name)
			continue
		}
		equal(d, "file "+name, g, w)
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			d.differ("file %q should not be there", name)
		}
	}
}

func (d *comparer) call(got, want *oracleResult) {
	equal(d, "isError", got.IsError, want.IsError)
	if got.IsError != want.IsError {
		d.differ("text: got %s, want %s", short(got.text()), short(want.text()))
		return
	}
	if d.c.Advice == "loose" || d.c.Compare.Text == "error-only" {
		return
	}
	equal(d, "errorStage", got.ErrorStage, want.ErrorStage)
	if want.IsError && want.ErrorCode != "" {
		equal(d, "errorCode of "+got.text(), got.ErrorCode, want.ErrorCode)
	} else {
		d.texts(got, want)
	}
	equal(d, "details", canonical(got.Details), canonical(want.Details))
	d.images(got, want)
	if want.EffectiveArgs != nil {
		equal(d, "effectiveArgs", d.withoutNulls(got.EffectiveArgs), d.withoutNulls(want.EffectiveArgs))
	}
	if want.Updates != nil {
		d.updates(got.Updates, want.Updates)
	}
}

// texts compares the texts as the case says. In errors a path is relative to
// the workspace (N6).
func (d *comparer) texts(got, want *oracleResult) {
	g, w := got.text(), strings.ReplaceAll(want.text(), "$BINDIR:", "")
	g = strings.ReplaceAll(g, fallbackPath, "$BINDIR")
	if want.IsError {
		relative := strings.NewReplacer("$WORKSPACE/", "", "$WORKSPACE", ".")
		g, w = relative.Replace(g), relative.Replace(w)
	}
	switch d.c.Compare.Text {
	case "", "exact":
		equal(d, "text", g, w)
	case "lines-any-order":
		equal(d, "text", sortedBody(g), sortedBody(w))
	case "contains":
		for _, part := range d.c.Compare.Contains {
			if !strings.Contains(g, part) {
				d.differ("text %s does not hold %q", short(g), part)
			}
		}
	case "subset":
		d.subset(g, w)
	default:
		d.differ("unknown compare rule %q", d.c.Compare.Text)
	}
}

func (d *comparer) subset(got, want string) {
	if d.c.Compare.Subset == nil {
		d.differ("subset without its rule")
		return
	}
	re := regexp.MustCompile(d.c.Compare.Subset.Regex)
	body, notice := splitNotice(got)
	_, wantNotice := splitNotice(want)
	equal(d, "notice", notice, wantNotice)
	lines := strings.Split(body, "\n")
	for _, l := range lines {
		if !re.MatchString(l) {
			d.differ("line %q does not match", l)
		}
	}
	slices.Sort(lines)
	equal(d, "number of different lines", len(slices.Compact(lines)), d.c.Compare.Subset.Count)
}

// splitNotice parts a text from its final notice.
func splitNotice(text string) (body, notice string) {
	i := strings.LastIndex(text, "\n\n[")
	if i < 0 || !strings.HasSuffix(text, "]") {
		return text, ""
	}
	return text[:i], text[i:]
}

func sortedBody(text string) string {
	body, notice := splitNotice(text)
	lines := strings.Split(body, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n") + notice
}

func (d *comparer) images(got, want *oracleResult) {
	switch d.c.Compare.Image {
	case "":
		equal(d, "images", got.Images, want.Images)
	case "dimensions":
		equal(d, "number of images", len(got.Images), len(want.Images))
		for i := range min(len(got.Images), len(want.Images)) {
			g, w := got.Images[i], want.Images[i]
			g.EqualsFile, w.EqualsFile = nil, nil
			equal(d, "image", g, w)
		}
	default:
		d.differ("unknown compare rule %q for images", d.c.Compare.Image)
	}
}

// withoutNulls drops the arguments that were null in the call: here they are
// absent (N5).
func (d *comparer) withoutNulls(args json.RawMessage) any {
	var given, have map[string]any
	if json.Unmarshal(d.c.Args, &given) != nil || json.Unmarshal(args, &have) != nil {
		return canonical(args)
	}
	for k, v := range given {
		if v == nil {
			delete(have, k)
		}
	}
	return have
}

// updates compares the first update, and what all of ours make together with
// pi's last one, which has the text so far. Our details leave the text out.
func (d *comparer) updates(got, want *oracleUpdates) {
	if got == nil {
		d.differ("no updates")
		return
	}
	equal(d, "first update", got.First.Content, want.First.Content)
	equal(d, "details of the first update", canonical(got.First.Details), canonical(want.First.Details))
	g, w := (&oracleResult{Content: got.Last.Content}).text(), (&oracleResult{Content: want.Last.Content}).text()
	if !strings.HasSuffix(g, w) || len(g) != len(w) && !strings.Contains(string(want.Last.Details), `"truncated"`) {
		d.differ("last update: got %s, want %s", short(g), short(w))
	}
	equal(d, "details of the last update", withoutContent(got.Last.Details), withoutContent(want.Last.Details))
}

func withoutContent(details json.RawMessage) any {
	v := canonical(details)
	if m, ok := v.(map[string]any); ok {
		if t, ok := m["truncation"].(map[string]any); ok {
			delete(t, "content")
		}
	}
	return v
}

// canonical is JSON as a value; null and nothing are the same.
func canonical(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return "invalid JSON: " + string(raw)
	}
	return v
}
