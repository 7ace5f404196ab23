package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/tools"
	"github.com/pi-worker/pi-worker/tools/snapshot"
	"github.com/pi-worker/pi-worker/worker"
)

// errNotStarted says that Start was not called.
var errNotStarted = errors.New("worker.workspace.mode snapshot needs Start")

// workspace gives the folder of a session's files. One that is not kept on disk
// stays while the worker owns the session.
func (a *Agents) workspace(id string) (dir string, err error) {
	w := a.cfg.Worker.Workspace
	if w.Mode == "dir" {
		dir = filepath.Join(w.Dir, id)
		return dir, os.MkdirAll(dir, 0o750)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if dir := a.temp[id]; dir != "" {
		return dir, nil
	}
	if dir, err = a.makeTemp(w.Dir, id); err == nil {
		a.temp[id] = dir
	}
	return dir, err
}

// left removes a session's workspace from this host. One that could not be
// saved stays, and is gone on with if nobody else had the session meanwhile.
func (a *Agents) left(id string) {
	a.mu.Lock()
	dir, f := a.temp[id], a.files[id]
	delete(a.outputs, id)
	if f != nil && f.isUnsaved() {
		a.mu.Unlock()
		a.log.Warn("the files of a session are on this host only", "session", id, "dir", dir)
		return
	}
	delete(a.temp, id)
	delete(a.files, id)
	a.mu.Unlock()
	if dir == "" {
		return
	}
	if err := tools.Remove(dir); err != nil {
		a.log.Warn("removing a workspace", "session", id, "error", err)
	}
	a.unlock(dir)
}

// files is a workspace in mode snapshot, while this worker owns its session.
type files struct {
	dir  string
	tree *snapshot.Tree

	restored atomic.Bool
	manifest string // to restore, "" none

	mu      sync.Mutex // guards what is below; held while files are saved or restored
	epoch   string
	unsaved bool
	swept   bool // what killed workers left behind is gone
}

func (f *files) isUnsaved() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unsaved
}

// snapshots gives the session's files, and where they are.
func (a *Agents) snapshots(req worker.AgentRequest) (*files, error) {
	if a.store == nil {
		return nil, errNotStarted
	}
	objects, err := a.store.Objects(req.Session, "files")
	if err != nil {
		return nil, err
	}
	manifest := ""
	if req.Saved != nil {
		if manifest = objects.ShortName(req.Saved.Manifest); manifest == "" {
			return nil, fmt.Errorf("the log names %q, which is no snapshot of this session", req.Saved.Manifest)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.files[req.Session]; f != nil {
		if f.goOn(req.Epoch, manifest) {
			return f, nil
		}
		a.log.Warn("another worker went on with a session whose files could not be saved here; they stay on disk",
			"session", req.Session, "dir", f.dir)
		delete(a.temp, req.Session)
	}
	w := a.cfg.Worker.Workspace
	dir, err := a.makeTemp(w.Dir, req.Session)
	if err != nil {
		return nil, err
	}
	tree, err := snapshot.New(dir, objects, snapshotOptions(a.cfg))
	if err != nil {
		return nil, err
	}
	tree.Begin(req.Epoch)
	f := &files{dir: dir, tree: tree, epoch: req.Epoch, manifest: manifest}
	f.restored.Store(manifest == "")
	a.temp[req.Session], a.files[req.Session] = dir, f
	return f, nil
}

// goOn is false if the files are not those of the session any more.
func (f *files) goOn(epoch, manifest string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.epoch == epoch {
		return true
	}
	if f.tree.Last() != manifest {
		return false
	}
	f.epoch = epoch
	f.tree.Begin(epoch)
	return true
}

func snapshotOptions(cfg *config.Config) snapshot.Options {
	w, r := cfg.Worker.Workspace, cfg.Retention
	opt := snapshot.Options{
		MaxFiles: w.MaxFiles, MaxBytes: int64(w.MaxBytes), Exclude: w.Exclude, Always: tools.PrivateDir,
	}
	// Neither the record that names it nor a part of it may expire meanwhile.
	if r.MaxAge > 0 {
		opt.RenewAfter = r.MaxAge / 2
	}
	return opt
}

// restore fills the folder, once; after an error it may be tried again.
func (f *files) restore(ctx context.Context) error {
	if f.restored.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.restored.Load() {
		return nil
	}
	if err := empty(f.dir); err != nil {
		return err
	}
	if err := f.tree.Restore(ctx, f.manifest); err != nil {
		return err
	}
	f.restored.Store(true)
	return nil
}

// empty removes what a restore has left that broke off.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, tools.Remove(filepath.Join(dir, e.Name())))
	}
	return err
}

// changing are the tools that can change files.
var changing = map[string]bool{"write": true, "edit": true, "bash": true}

// keepFiles makes tools of a workspace that lasts. ctx is the ownership's.
func (a *Agents) keepFiles(ctx context.Context, f *files, req worker.AgentRequest, list []loop.Tool) []loop.Tool {
	out := make([]loop.Tool, len(list))
	for i, t := range list {
		out[i] = &keptTool{Tool: t, agents: a, files: f, req: req, owned: ctx}
	}
	return out
}

// keptTool runs on the session's files wherever they were changed last. They
// are saved after the call and before its end is in the log: whoever reads that
// a call has ended finds what it did.
type keptTool struct {
	loop.Tool
	agents *Agents
	files  *files
	req    worker.AgentRequest
	owned  context.Context // ends with the ownership, not with the run
}

func (t *keptTool) Execute(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
	if err := t.files.restore(ctx); err != nil {
		t.agents.log.Warn("restoring a workspace", "session", t.req.Session, "error", err)
		return loop.ToolResult{}, fmt.Errorf("the files of this session could not be fetched, and nothing was run: %w", err)
	}
	res, err := t.Tool.Execute(ctx, call, update)
	if !changing[t.Spec().Name] {
		return res, err
	}
	note := t.save()
	switch {
	case note == "":
	case err != nil:
		err = fmt.Errorf("%w\n\n%s", err, note)
	default:
		res.Content = append(res.Content[:len(res.Content):len(res.Content)], &loop.Text{Text: note})
	}
	return res, err
}

// save gives the note for the model, "" if all is well. An aborted call has
// changed files too, so its context does not count.
func (t *keptTool) save() string {
	f := t.files
	f.mu.Lock()
	defer f.mu.Unlock()
	saved, err := f.tree.Save(t.owned)
	if t.owned.Err() != nil {
		return ""
	}
	f.unsaved = err != nil
	if err != nil {
		t.agents.log.Warn("saving a workspace", "session", t.req.Session, "error", err)
		t.agents.unlock(f.dir) // these files are nowhere else: no sweep may take them
		t.append(&loop.WorkspaceUnsaved{ErrorMessage: err.Error()})
		return "[The files of this session could not be saved: " + unsavedText(err) + "]"
	}
	if saved != nil {
		t.append(&loop.WorkspaceSaved{
			Manifest: t.req.Session + "/files/" + saved.Manifest,
			Files:    int64(saved.Files), Bytes: saved.Bytes, Stored: saved.Stored,
		})
	}
	return ""
}

func unsavedText(err error) string {
	text := err.Error()
	if _, ok := errors.AsType[*snapshot.CapError](err); ok {
		text += ". Until there is less, what changes is lost when the session moves to another worker"
	}
	return text
}

func (t *keptTool) append(ev loop.Event) {
	if err := t.req.Append(t.owned, ev); err != nil {
		// Nothing more gets into the log, and the run ends for that.
		t.agents.log.Debug("appending", "session", t.req.Session, "error", err)
	}
}

func (t *keptTool) PrepareArguments(args json.RawMessage) (json.RawMessage, error) {
	if p, ok := t.Tool.(loop.ArgumentPreparer); ok {
		return p.PrepareArguments(args)
	}
	return args, nil
}

// sweepTime bounds the deletion of objects after a run.
const sweepTime = 20 * time.Second

// sweep deletes, after a run, what no snapshot needs any more.
func (a *Agents) sweep(ctx context.Context, f *files, req worker.AgentRequest) {
	if ctx.Err() != nil {
		return // it is another worker's now, which knows better
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.restored.Load() {
		return
	}
	err := req.Flush(ctx)
	if err == nil && !f.swept {
		err = f.tree.SweepAfter(ctx, req.ClaimsSince...)
		f.swept = err == nil
	}
	if err == nil {
		err = f.tree.Sweep(ctx)
	}
	if err != nil && ctx.Err() == nil {
		a.log.Warn("deleting what snapshots do not need any more", "session", req.Session, "error", err)
	}
}
