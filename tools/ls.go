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

// maxEntries is how many entries a directory may have before ls gives up on
// sorting it.
const maxEntries = 200_000

type lsArgs struct {
	Path  string `json:"path"`
	Limit number `json:"limit"`
}

type lsDetails struct {
	Truncation        *truncation `json:"truncation,omitempty"`
	EntryLimitReached int         `json:"entryLimitReached,omitempty"`
}

func (w *Workspace) ls(ctx context.Context, args json.RawMessage, _ updater) (loop.ToolResult, error) {
	in, err := unmarshalArgs[lsArgs](args)
	if err != nil {
		return loop.ToolResult{}, err
	}
	limit, err := wholeNumber("limit", in.Limit, 500)
	if err != nil {
		return loop.ToolResult{}, err
	}
	rel, err := w.resolve(in.Path, true)
	if err != nil {
		return loop.ToolResult{}, err
	}
	names, more, err := w.list(ctx, rel)
	if err != nil {
		return loop.ToolResult{}, err
	}
	return lsResult(names, limit, more), nil
}

func lsResult(names []string, limit int, more bool) loop.ToolResult {
	if len(names) == 0 {
		return loop.TextResult("(empty directory)")
	}
	var details lsDetails
	var notices []string
	if len(names) > limit {
		names = names[:limit]
		details.EntryLimitReached = limit
		notices = append(notices, fmt.Sprintf("%d entries limit reached. Use limit=%d for more", limit, limit*2))
	}
	if more {
		notices = append(notices, fmt.Sprintf("only the first %d entries were looked at", maxEntries))
	}
	t := truncateHead(strings.Join(names, "\n"), noMaxLines)
	if t.Truncated {
		details.Truncation = t
		notices = append(notices, formatSize(maxBytes)+" limit reached")
	}
	if notices == nil {
		return loop.TextResult(t.Content)
	}
	return textResult(t.Content+notice(notices), details)
}

// notice is the last part of a text, which says what is missing.
func notice(notices []string) string { return "\n\n[" + strings.Join(notices, ". ") + "]" }

// list gives the sorted, escaped names of a directory's entries.
func (w *Workspace) list(ctx context.Context, rel string) (names []string, more bool, err error) {
	info, err := w.root.Stat(rel)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, false, fmt.Errorf("Path not found: %s", display(rel))
	case err != nil:
		return nil, false, hostError(err, rel)
	case !info.IsDir():
		return nil, false, fmt.Errorf("Not a directory: %s", display(rel))
	}
	dir, err := w.openDir(rel)
	if err != nil {
		return nil, false, cannotRead(err, rel)
	}
	defer dir.Close()
	for !more {
		entries, err := dir.ReadDir(1000)
		for _, e := range entries {
			names = append(names, w.entryName(rel, e))
		}
		if err != nil {
			break
		}
		if err := aborted(ctx); err != nil {
			return nil, false, err
		}
		more = len(names) >= maxEntries
	}
	sortNames(names)
	return names, more, nil
}

// cannotRead has pi's words for a directory that may not be listed.
func cannotRead(err error, rel string) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return fmt.Errorf("Cannot read directory: %s: %s, scandir '%s'", errnoName(errno), errno.Error(), display(rel))
	}
	return hostError(err, rel)
}

// entryName is a directory entry as ls shows it: a slash after directories and
// after links to directories inside the workspace.
func (w *Workspace) entryName(dir string, e os.DirEntry) string {
	name := escapeName(e.Name())
	isDir := e.IsDir()
	if e.Type()&os.ModeSymlink != 0 {
		info, err := w.root.Stat(dir + "/" + e.Name())
		isDir = err == nil && info.IsDir()
	}
	if isDir {
		return name + "/"
	}
	return name
}
