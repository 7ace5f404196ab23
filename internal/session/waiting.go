package session

import (
	"context"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/subjects"
)

// headerPending is how many more messages match, in answers to gets of a batch.
const headerPending = "Nats-Num-Pending"

// maxKept is the largest payload that a Waiting keeps until it is read, in
// bytes. Of a larger one only the place is known.
const maxKept = 16 << 10

// Waiting is an input that lies in the inbox, as [Store.Look] finds it: not
// read yet, and perhaps not well-formed.
type Waiting struct {
	Kind subjects.Kind
	Seq  uint64 // stream sequence in the inbox

	session string
	blob    string
	message *message // nil if it was too large to keep
}

// Look finds the session's first input after the sequence, of any kind, and
// says whether there may be more behind it. With after 0 it knows for certain.
// ErrNoInput if there is none.
func (s *Store) Look(ctx context.Context, session string, after uint64) (w *Waiting, more bool, err error) {
	if _, err := subjects.ParseSession(session); err != nil {
		return nil, false, err
	}
	// From the beginning the server counts by its index; from the middle it
	// would have to go through a block of messages.
	count := after == 0
	m, err := s.nextOf(ctx, s.names.InboxStream(), s.names.Inputs(session), after+1, count)
	if errors.Is(err, errNotFound) {
		return nil, false, ErrNoInput
	}
	if err != nil {
		return nil, false, explain("looking into the inbox", err)
	}
	_, kind, err := s.names.ParseInput(m.subject)
	if err != nil {
		return nil, false, err
	}
	w = &Waiting{Kind: kind, Seq: m.seq, session: session, blob: ownBlob(session, m.data), message: m}
	if len(m.data) > maxKept {
		w.message = nil
	}
	// The last one is the server's; a stranger may have set one as well.
	pending := m.header[headerPending]
	return w, !count || len(pending) == 0 || pending[len(pending)-1] != "0", nil
}

// ReadInput reads what Look found. ErrNoInput if it is gone meanwhile.
func (s *Store) ReadInput(ctx context.Context, w *Waiting) (*Input, error) {
	if w.message != nil {
		return s.readInput(ctx, w.message)
	}
	in, err := s.NextInput(ctx, w.session, w.Kind, w.Seq-1)
	if err == nil && in.Ref.Seq != w.Seq {
		return nil, ErrNoInput
	}
	return in, err
}

// DeleteWaiting is DeleteInput for what nobody needs to read.
func (s *Store) DeleteWaiting(ctx context.Context, w *Waiting) error {
	return s.DeleteInput(ctx, &Input{Ref: InputRef{Kind: w.Kind, Seq: w.Seq}, Session: w.session, blob: w.blob})
}

// nextOf is next; count has the server say how many more there are, and costs
// a second message, which ends the batch of one and which nobody waits for.
func (s *Store) nextOf(ctx context.Context, stream, subject string, seq uint64, count bool) (*message, error) {
	req := make([]byte, 0, 64+len(subject))
	req = append(strconv.AppendUint(append(req, `{"seq":`...), max(seq, 1), 10), `,"next_by_subj":"`...)
	req = append(append(req, subject...), '"') // subjects of ours need no escapes
	if count {
		req = append(req, `,"batch":1`...)
	}
	req = append(req, '}')
	resp, err := s.ask(ctx, &nats.Msg{Subject: s.api + "DIRECT.GET." + stream, Data: req})
	if err != nil {
		return nil, err
	}
	return parseDirect(resp)
}
