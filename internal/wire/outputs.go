package wire

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/secret"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/tools"
	"github.com/pi-worker/pi-worker/worker"
)

// How much of a session's long outputs is kept; the oldest go first, and the
// newest stays however large it is.
const (
	maxOutputs     = 32
	maxOutputBytes = 256 << 20
)

// outputs are the whole outputs of a session's commands, in the object store,
// while this worker owns the session.
type outputs struct {
	objects *session.Objects
	owned   context.Context // ends with the ownership
	epoch   string
	mask    *secret.Mask
	log     *slog.Logger

	mu     sync.Mutex // guards what is below
	listed bool
	kept   []session.Object // the oldest first
}

// sessionOutputs gives the session's outputs. ctx is the ownership's.
func (a *Agents) sessionOutputs(ctx context.Context, req worker.AgentRequest) (*outputs, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := a.outputs[req.Session]; o != nil && o.epoch == req.Epoch && o.owned.Err() == nil {
		return o, nil
	}
	objects, err := a.store.Objects(req.Session, session.HeadingOutput)
	if err != nil {
		return nil, err
	}
	o := &outputs{objects: objects, owned: ctx, epoch: req.Epoch, mask: a.mask, log: a.log.With("session", req.Session)}
	a.outputs[req.Session] = o
	return o, nil
}

// Put stores an output without the values that are secret, as results have it.
func (o *outputs) Put(ctx context.Context, name string, content io.ReadSeeker) (tools.StoredOutput, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(o.owned, cancel)()
	clean := &maskedOutput{in: content, mask: o.mask}
	if err := o.objects.Put(ctx, name, clean); err != nil {
		if o.owned.Err() == nil {
			o.log.Warn("storing an output", "error", err)
		}
		return tools.StoredOutput{}, err
	}
	if err := o.keep(ctx, session.Object{Name: name, Size: clean.size}); err != nil && o.owned.Err() == nil {
		o.log.Warn("deleting old outputs", "error", err) // the next one tries again
	}
	return tools.StoredOutput{Blob: o.objects.FullName(name), Size: clean.size}, nil
}

// keep takes note of what was stored, and deletes what is too much.
func (o *outputs) keep(ctx context.Context, added session.Object) (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.listed {
		if o.kept, err = o.objects.List(ctx); err != nil {
			return err
		}
		o.listed = true
	} else {
		o.kept = append(o.kept, added)
	}
	for n := tooMany(o.kept); n > 0; n-- {
		if _, err := o.objects.Delete(ctx, o.kept[0].Name); err != nil {
			return err
		}
		o.kept = o.kept[1:]
	}
	return nil
}

// tooMany is how many of the oldest must go.
func tooMany(kept []session.Object) (n int) {
	bytes := int64(0)
	for _, obj := range kept {
		bytes += obj.Size
	}
	for len(kept)-n > 1 && (len(kept)-n > maxOutputs || bytes > maxOutputBytes) {
		bytes -= kept[n].Size
		n++
	}
	return n
}

// Get opens an output.
func (o *outputs) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	in, err := o.objects.Get(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, tools.ErrNoOutput
	}
	if err != nil {
		o.log.Warn("fetching an output", "error", err)
	}
	return in, err
}

// maskedOutput reads an output without the values that mask knows, whose size is
// counted.
type maskedOutput struct {
	in   io.ReadSeeker
	mask *secret.Mask

	stream *secret.Stream
	chunk  [64 << 10]byte
	text   string // masked, not yet read
	size   int64
	err    error
}

// Seek goes back to the beginning; it knows no other place.
func (m *maskedOutput) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekStart {
		return 0, errors.ErrUnsupported
	}
	m.stream, m.text, m.size, m.err = m.mask.Stream(), "", 0, nil
	return m.in.Seek(0, io.SeekStart)
}

func (m *maskedOutput) Read(p []byte) (int, error) {
	for m.text == "" {
		if m.err != nil {
			return 0, m.err
		}
		var n int
		n, m.err = m.in.Read(m.chunk[:])
		m.text = m.stream.Text(string(m.chunk[:n]))
		if m.err == io.EOF {
			m.text += m.stream.Rest()
		}
	}
	n := copy(p, m.text)
	m.text = m.text[n:]
	m.size += int64(n)
	return n, nil
}
