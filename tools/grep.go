package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"github.com/pi-worker/pi-worker/loop"
)

type grepArgs struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path"`
	Glob       string `json:"glob"`
	IgnoreCase bool   `json:"ignoreCase"`
	Literal    bool   `json:"literal"`
	Context    number `json:"context"`
	Limit      number `json:"limit"`
}

type grepDetails struct {
	Truncation        *truncation `json:"truncation,omitempty"`
	MatchLimitReached int         `json:"matchLimitReached,omitempty"`
	LinesTruncated    bool        `json:"linesTruncated,omitempty"`
}

// maxContext bounds the lines around a match.
const maxContext = 1000

func (w *Workspace) grep(ctx context.Context, args json.RawMessage, _ updater) (loop.ToolResult, error) {
	in, err := unmarshalArgs[grepArgs](args)
	if err != nil {
		return loop.ToolResult{}, err
	}
	g := &grepping{w: w}
	if err := g.parse(&in); err != nil {
		return loop.ToolResult{}, err
	}
	rel, err := w.resolve(in.Path, true)
	if err != nil {
		return loop.ToolResult{}, err
	}
	info, err := w.root.Stat(rel)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return loop.ToolResult{}, fmt.Errorf("Path not found: %s", display(rel))
	case err != nil:
		return loop.ToolResult{}, hostError(err, rel)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.opt.Limits.SearchTime, errSearchTime)
	defer cancel()
	if info.IsDir() {
		err = g.searchDir(ctx, rel)
	} else {
		err = g.searchOne(ctx, rel)
	}
	notices, err := searchNotices(err, g.unreadable, 0)
	if err != nil {
		return loop.ToolResult{}, err
	}
	return g.result(notices), nil
}

// grepping is one call.
type grepping struct {
	w       *Workspace
	pattern *linePattern
	glob    *glob
	negated bool // the glob leaves out
	dirOnly bool // the glob ends in a slash
	byName  bool // the glob looks at names only
	context int
	limit   int

	lines      []string
	matches    int
	cut        bool // a line was shortened
	unreadable []string
}

func (g *grepping) parse(in *grepArgs) (err error) {
	if g.pattern, err = parsePattern(in.Pattern, in.Literal, in.IgnoreCase); err != nil {
		return err
	}
	// Zero and less mean 1 and no context; only fractions are refused.
	if g.limit, err = wholeNumber("limit", atLeast(in.Limit, 1), 100); err != nil {
		return err
	}
	if in.Context != nil && *in.Context > 0 {
		if g.context, err = wholeNumber("context", in.Context, 0); err != nil {
			return err
		}
		g.context = min(g.context, maxContext)
	}
	if in.Glob == "" {
		return nil
	}
	var pattern string
	pattern, g.negated = strings.CutPrefix(in.Glob, "!")
	pattern, g.dirOnly = strings.CutSuffix(pattern, "/")
	g.byName = !strings.Contains(strings.TrimPrefix(pattern, "**/"), "/")
	if g.byName {
		pattern = strings.TrimPrefix(pattern, "**/")
	}
	g.glob, err = parseGlob(strings.TrimPrefix(strings.TrimPrefix(pattern, "./"), "/"), true)
	return err
}

func atLeast(n number, least float64) number {
	if n != nil && *n < least {
		return &least
	}
	return n
}

// keep applies the glob, which counts more than the ignore files.
func (g *grepping) keep(p string, isDir, ignored bool) bool {
	if g.glob == nil {
		return !ignored
	}
	subject := p
	if g.byName {
		subject = path.Base(p)
	}
	hit := (isDir || !g.dirOnly) && g.glob.match(subject)
	switch {
	case g.negated:
		return !ignored && !hit
	case isDir:
		return !ignored || hit
	}
	return hit
}

// searchOne searches the file that the call names.
func (g *grepping) searchOne(ctx context.Context, rel string) error {
	f, _, err := g.w.open(rel)
	if err != nil {
		return err
	}
	defer f.Close()
	matches, err := g.searcher(ctx).search(f, true)
	if err != nil {
		return err
	}
	g.add(showPath(path.Base(rel)), matches)
	return nil
}

func (g *grepping) searcher(ctx context.Context) *fileSearch {
	return &fileSearch{ctx: ctx, pattern: g.pattern, context: g.context, max: moreThan(g.limit)}
}

// grepJob is one file on its way through the workers.
type grepJob struct {
	file    *os.File
	path    string // relative to the workspace
	done    chan struct{}
	matches [][]matchedLine
	err     error
}

// searchDir walks a directory in one goroutine, searches the files in others,
// and takes the results in the order of the paths.
func (g *grepping) searchDir(ctx context.Context, rel string) error {
	dir, err := g.w.openSearchDir(rel)
	if err != nil {
		return err
	}
	defer dir.Close()
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	workers := max(1, min(4, runtime.GOMAXPROCS(0)))
	todo, inOrder := make(chan *grepJob), make(chan *grepJob, 64)
	var wg sync.WaitGroup
	k := &walker{ctx: ctx, keep: g.keep}
	k.visit = func(e walked) error { return k.hand(e, todo, inOrder) }
	var walkErr error
	wg.Go(func() {
		defer close(inOrder)
		defer close(todo)
		walkErr = k.run(g.w, dir, rel)
	})
	for range workers {
		wg.Go(func() {
			s := g.searcher(ctx)
			for job := range todo {
				job.matches, job.err = s.search(job.file, false)
				job.file.Close()
				close(job.done)
			}
		})
	}
	skip := len(clearDot(rel))
	if skip > 0 {
		skip++
	}
	for job := range inOrder {
		<-job.done
		if job.err != nil && ctx.Err() == nil {
			k.noteUnreadable(job.path)
		}
		if g.matches < moreThan(g.limit) {
			g.add(showPath(job.path[skip:]), job.matches)
		}
		if g.matches >= moreThan(g.limit) {
			cancel(errEnough)
		}
	}
	wg.Wait()
	cancel(nil)
	for _, p := range k.unreadable {
		g.unreadable = append(g.unreadable, p[min(skip, len(p)):])
	}
	if outer.Err() != nil {
		return context.Cause(outer)
	}
	if errors.Is(walkErr, errEnough) {
		return nil
	}
	return walkErr
}

// hand opens a regular file and gives it to the workers.
func (k *walker) hand(e walked, todo, inOrder chan<- *grepJob) error {
	if !e.mode.IsRegular() {
		return nil
	}
	f, err := e.root.OpenFile(e.name, os.O_RDONLY|openNonblock|openNoTTY|openNoFollow, 0)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			k.noteUnreadable(e.path)
		}
		return nil
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil
	}
	job := &grepJob{file: f, path: e.path, done: make(chan struct{})}
	select {
	case inOrder <- job:
	case <-k.ctx.Done():
		f.Close()
		return context.Cause(k.ctx)
	}
	todo <- job // a worker always comes back for it
	return nil
}

// add takes the matches of one file, as many as are still wanted.
func (g *grepping) add(name string, matches [][]matchedLine) {
	for _, match := range matches {
		g.matches++
		if g.matches > g.limit {
			return
		}
		for _, l := range match {
			format := "%s-%d- %s"
			if l.match {
				format = "%s:%d: %s"
			}
			g.cut = g.cut || l.cut
			g.lines = append(g.lines, fmt.Sprintf(format, name, l.number, l.text))
		}
	}
}

func (g *grepping) result(notices []string) loop.ToolResult {
	if g.matches == 0 {
		text := "No matches found"
		if notices != nil {
			text += notice(notices)
		}
		return loop.TextResult(text)
	}
	var details grepDetails
	var own []string
	if g.matches >= moreThan(g.limit) {
		details.MatchLimitReached = g.limit
		own = append(own, fmt.Sprintf("%d matches limit reached. Use limit=%d for more, or refine pattern", g.limit, 2*g.limit))
	}
	t := truncateHead(strings.Join(g.lines, "\n"), noMaxLines)
	if t.Truncated {
		details.Truncation = t
		own = append(own, formatSize(maxBytes)+" limit reached")
	}
	if g.cut {
		details.LinesTruncated = true
		own = append(own, fmt.Sprintf("Some lines truncated to %d chars. Use read tool to see full lines", maxShownLine))
	}
	text := t.Content
	if all := append(own, notices...); all != nil {
		text += notice(all)
	}
	if details == (grepDetails{}) {
		return loop.TextResult(text)
	}
	return textResult(text, details)
}
