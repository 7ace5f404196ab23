package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/pi-worker/pi-worker/loop"
)

type findArgs struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
	Limit   number `json:"limit"`
}

type findDetails struct {
	Truncation         *truncation `json:"truncation,omitempty"`
	ResultLimitReached int         `json:"resultLimitReached,omitempty"`
}

// errSearchTime ends a search that takes too long.
var errSearchTime = errors.New("search took too long")

func (w *Workspace) find(ctx context.Context, args json.RawMessage, _ updater) (loop.ToolResult, error) {
	in, err := unmarshalArgs[findArgs](args)
	if err != nil {
		return loop.ToolResult{}, err
	}
	limit, err := wholeNumber("limit", in.Limit, 1000)
	if err != nil {
		return loop.ToolResult{}, err
	}
	matches, err := findMatcher(in.Pattern)
	if err != nil {
		return loop.ToolResult{}, err
	}
	rel, err := w.resolve(in.Path, true)
	if err != nil {
		return loop.ToolResult{}, err
	}
	dir, err := w.openSearchDir(rel)
	if err != nil {
		return loop.ToolResult{}, err
	}
	defer dir.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, w.opt.Limits.SearchTime, errSearchTime)
	defer cancel()

	skip := len(clearDot(rel))
	if skip > 0 {
		skip++
	}
	var found []string
	k := &walker{ctx: ctx, visit: func(e walked) error {
		below := e.path[skip:]
		if !matches(below, e.name) {
			return nil
		}
		if len(found) >= moreThan(limit) {
			return errEnough
		}
		if e.mode.IsDir() {
			below += "/"
		}
		found = append(found, showPath(below))
		return nil
	}}
	err = k.run(w, dir, rel)
	notices, err := searchNotices(err, k.unreadable, skip)
	if err != nil {
		return loop.ToolResult{}, err
	}
	return findResult(found, limit, notices), nil
}

// moreThan is how many results are looked for: one more than the limit, so
// that the notice says the truth. A limit of one asks for any result, and no
// second one is looked for.
func moreThan(limit int) int {
	if limit == 1 {
		return 1
	}
	return limit + 1
}

func findResult(found []string, limit int, notices []string) loop.ToolResult {
	var details findDetails
	if len(found) >= moreThan(limit) {
		found = found[:limit]
		details.ResultLimitReached = limit
		notices = append([]string{fmt.Sprintf(
			"%d results limit reached. Use limit=%d for more, or refine pattern", limit, limit*2)}, notices...)
	}
	text := "No files found matching pattern"
	if len(found) > 0 {
		t := truncateHead(strings.Join(found, "\n"), noMaxLines)
		text = t.Content
		if t.Truncated {
			details.Truncation = t
			notices = append(notices, formatSize(maxBytes)+" limit reached")
		}
	}
	if notices != nil {
		text += notice(notices)
	}
	if details == (findDetails{}) {
		return loop.TextResult(text)
	}
	return textResult(text, details)
}

// searchNotices words what kept a search from being complete. The error is one
// that leaves no result.
func searchNotices(err error, unreadable []string, skip int) ([]string, error) {
	var notices []string
	switch {
	case errors.Is(err, errSearchTime):
		notices = append(notices, "Search stopped after its time limit, results are incomplete")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil, errAborted
	case err != nil:
		return nil, hostError(err, ".")
	}
	if len(unreadable) > 0 {
		names := make([]string, 0, 3)
		for _, p := range unreadable[:min(3, len(unreadable))] {
			names = append(names, showPath(p[min(skip, len(p)):]))
		}
		if more := len(unreadable) - len(names); more > 0 {
			names = append(names, fmt.Sprintf("%d more", more))
		}
		notices = append(notices, "Not readable: "+strings.Join(names, ", "))
	}
	return notices, nil
}

// openSearchDir opens a directory for a search.
func (w *Workspace) openSearchDir(rel string) (*os.Root, error) {
	info, err := w.root.Stat(rel)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("Path not found: %s", display(rel))
	case err != nil:
		return nil, hostError(err, rel)
	case !info.IsDir():
		return nil, fmt.Errorf("Not a directory: %s", display(rel))
	}
	dir, err := w.root.OpenRoot(rel)
	if err != nil {
		return nil, hostError(err, rel)
	}
	return dir, nil
}

// findMatcher compiles a pattern: without a slash it is matched against names,
// otherwise against the path relative to the searched directory, at any depth
// unless it begins with a slash or a dot and a slash.
func findMatcher(pattern string) (func(below, name string) bool, error) {
	if pattern == "" {
		return func(string, string) bool { return true }, nil
	}
	if !strings.Contains(pattern, "/") {
		g, err := parseGlob(pattern, true)
		if err != nil {
			return nil, err
		}
		return func(_, name string) bool { return g.match(name) }, nil
	}
	rest, anchored := strings.CutPrefix(pattern, "./")
	if !anchored {
		rest, anchored = strings.CutPrefix(pattern, "/")
	}
	if !anchored && !strings.HasPrefix(rest, "**/") {
		rest = "**/" + rest
	}
	g, err := parseGlob(rest, true)
	if err != nil {
		return nil, err
	}
	return func(below, _ string) bool { return g.match(below) }, nil
}

// showPath is a path in a list of results: one line of valid text. Bytes that
// are no UTF-8 become U+FFFD.
func showPath(p string) string { return escapeControls(decodeText([]byte(p))) }
