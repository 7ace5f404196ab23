package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// ErrNoOutput says that an output is not in the store, or not any more.
var ErrNoOutput = errors.New("tools: output is not kept")

// Outputs is a store of the whole outputs of one session's commands. Its
// methods may be called from any goroutine.
type Outputs interface {
	// Put stores an output under a name that is new. It may read content
	// more than once, from its beginning.
	Put(ctx context.Context, name string, content io.ReadSeeker) (StoredOutput, error)
	// Get opens an output, to be read within ctx. The error is [ErrNoOutput]
	// if the store does not have it.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
}

// StoredOutput says where an output is; it is part of the result's details.
type StoredOutput struct {
	Blob string `json:"blob"` // the store's name for it
	Size int64  `json:"size"` // bytes
}

// storeTime bounds the storing of one output; the call waits for it.
const storeTime = time.Minute

const outputDir = privateDir + "/output/"

// callName makes the part of a file's name that tells which call it is of:
// "17.0.2-" of the key "session/17/0/2", "" of a key that is no such name.
func callName(key string) string {
	_, rest, _ := strings.Cut(key, "/")
	if rest == "" || len(rest) > 64 || strings.Trim(rest, "0123456789/") != "" {
		return ""
	}
	return strings.ReplaceAll(rest, "/", ".") + "-"
}

// store puts the whole output into the store; nil if there is none, or no whole
// output. An aborted call has an output too, so its context's end does not
// count. What the store says of its troubles is the store's to log: the file is
// still here.
func (o *output) store(ctx context.Context) *StoredOutput {
	if o.w.opt.Outputs == nil || o.filePath == "" || o.fileErr != nil {
		return nil
	}
	f, _, err := o.w.open(o.filePath) // the command may have put something else there
	if err != nil {
		return nil
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	stored, err := o.w.opt.Outputs.Put(ctx, strings.TrimPrefix(o.filePath, outputDir), io.NewSectionReader(f, 0, o.fileSize))
	if err != nil {
		return nil
	}
	return &stored
}

// fetchOutput brings an output back that read is asked for and the workspace
// does not have: the call was another worker's, or is long ago.
func (w *Workspace) fetchOutput(ctx context.Context, rel string) error {
	name, ok := strings.CutPrefix(rel, outputDir)
	if !ok || w.opt.Outputs == nil || w.exists(rel) ||
		strings.Contains(name, "/") || !strings.HasPrefix(name, "bash-") || !strings.HasSuffix(name, ".log") {
		return nil
	}
	in, err := w.opt.Outputs.Get(ctx, name)
	switch {
	case errors.Is(err, ErrNoOutput):
		return fmt.Errorf("ENOENT: this output is not kept any more; a session keeps its newest ones: %s", display(rel))
	case err != nil:
		return fmt.Errorf("Cannot fetch %s: the store of outputs does not answer; try again later", display(rel))
	}
	defer in.Close()
	w.pruneOutputs()
	f, part, err := w.createPrivate("output", "part-", "")
	if err != nil {
		return hostError(err, rel)
	}
	_, err = io.Copy(f, in)
	if err = errors.Join(err, f.Close()); err == nil {
		err = w.root.Rename(part, rel)
	}
	if err != nil {
		_ = w.root.Remove(part)
		return hostError(err, rel)
	}
	return nil
}
