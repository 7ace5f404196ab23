package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/pi-worker/pi-worker/subjects"
)

// Codes of the server that nats.go has no name for.
const (
	codeMaxPerSubject    = 10077 // storing failed: among other reasons, the subject is full
	codeSequenceNotFound = 10043
	codeDeleteFailed     = 10057
)

// Receipt says that the broker has an input.
type Receipt struct {
	ID        string
	Seq       uint64 // stream sequence in the inbox
	Duplicate bool   // the broker had it already, within its duplicate window
}

// Publish puts an input into the session's inbox and rings the bell. Without
// an ID it gives the input one, so a Publish that is repeated after an unknown
// outcome must carry the ID itself. Inputs over the server's limit travel as a
// blob.
//
// Errors: subjects.ErrSession, ErrEmptyInput, ErrMalformed, ErrTooLarge,
// ErrInboxFull, ErrNoStream, ErrNoServer (then the outcome is unknown).
func (s *Store) Publish(ctx context.Context, session string, kind subjects.Kind, in *Input) (Receipt, error) {
	if _, err := subjects.ParseSession(session); err != nil {
		return Receipt{}, err
	}
	if _, err := subjects.ParseKind(string(kind)); err != nil {
		return Receipt{}, err
	}
	send := *in
	if strings.ContainsFunc(send.TraceParent, unicode.IsControl) {
		return Receipt{}, fmt.Errorf("session: publishing %s: trace context %.80q has control characters", kind, send.TraceParent)
	}
	if send.ID == "" {
		send.ID = nuid.Next()
	}
	data, err := send.encode(kind)
	if err != nil {
		return Receipt{}, fmt.Errorf("session: publishing %s: %w", kind, err)
	}
	if len(data) > s.opts.MaxInputBytes {
		return Receipt{}, fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrTooLarge, kind, len(data), s.opts.MaxInputBytes)
	}
	blob := ""
	if len(data) > s.limit() {
		var ref blobRef
		if data, ref, err = s.putBlob(ctx, session, "", "", data); err != nil {
			return Receipt{}, explain("storing a large "+string(kind), err)
		}
		blob = ref.Blob
	}
	receipt, err := s.publishInput(ctx, session, kind, &send, data)
	if blob != "" && (err != nil && !errors.Is(err, ErrNoServer) || receipt.Duplicate) {
		// Refused for certain, so nobody refers to the blob.
		err = errors.Join(err, explain("deleting blob "+blob, s.deleteBlob(ctx, blob)))
	}
	return receipt, err
}

func (s *Store) publishInput(ctx context.Context, session string, kind subjects.Kind, in *Input, data []byte) (Receipt, error) {
	msg := nats.NewMsg(s.names.Input(session, kind))
	msg.Data = data
	msg.Header.Set(jetstream.MsgIDHeader, session+"/"+in.ID)
	msg.Header.Set(subjects.HeaderRings, "1")
	if in.TraceParent != "" {
		msg.Header.Set(subjects.HeaderTraceParent, in.TraceParent)
	}
	if in.Redrive != 0 {
		// The first one's id may still be in the duplicate window.
		seq := strconv.FormatUint(in.Redrive, 10)
		msg.Header.Set(jetstream.MsgIDHeader, session+"/redrive/"+seq)
		msg.Header.Set(subjects.HeaderRedrive, seq)
	}
	ack, err := s.publishAgain(ctx, msg)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, nats.ErrNoResponders) {
		return Receipt{}, fmt.Errorf("publishing %s to %s: %w", kind, s.names.InboxStream(), ErrNoStream)
	}
	if isFull(err) {
		return Receipt{}, fmt.Errorf("%w: session %s, %s", ErrInboxFull, session, kind)
	}
	if err != nil {
		return Receipt{}, explain("publishing "+string(kind), err)
	}
	// Best effort: should the bell be lost, the ringer rings again.
	if err := s.Ring(session); err != nil {
		s.log.Warn("ringing the bell", "session", session, "error", err)
	}
	return Receipt{ID: in.ID, Seq: ack.Sequence, Duplicate: ack.Duplicate}, nil
}

func isFull(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == codeMaxPerSubject && strings.Contains(api.Description, "per subject")
}

// publishAgain publishes again after an unknown outcome, or when the stream has
// no leader; the message's id lets the broker keep one of them. It is not as
// patient as ask: a newcomer whose streams don't exist waits for it.
func (s *Store) publishAgain(ctx context.Context, msg *nats.Msg) (ack *jetstream.PubAck, err error) {
	for range 3 {
		ack, err = s.publish(ctx, msg)
		if err == nil || !isTransient(err) {
			return ack, err
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			return ack, err
		}
	}
	return ack, err
}

// publish stores one message and returns the broker's answer, or its refusal
// as *jetstream.APIError. It tries once.
func (s *Store) publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	resp, err := s.request(ctx, msg)
	if err != nil {
		return nil, err
	}
	if ack := plainAck(resp.Data); ack != nil {
		return ack, nil
	}
	var ack struct {
		jetstream.PubAck
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(resp.Data, &ack); err != nil {
		return nil, fmt.Errorf("reading the acknowledgement: %w", err)
	}
	if ack.Error != nil {
		return nil, ack.Error
	}
	if ack.Stream == "" || ack.Sequence == 0 {
		return nil, fmt.Errorf("no stream took %s: %.80q", msg.Subject, resp.Data)
	}
	return &ack.PubAck, nil
}

// plainAck reads an acknowledgement that says stream and sequence and nothing
// else, as nearly all do; nil for every other answer. It is on the path of each
// record.
func plainAck(data []byte) *jetstream.PubAck {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	name, rest, ok2 := bytes.Cut(rest, []byte(`","seq":`))
	digits, ok3 := bytes.CutSuffix(rest, []byte("}"))
	if !ok || !ok2 || !ok3 || len(name) == 0 || bytes.ContainsAny(name, `"\\`) {
		return nil
	}
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil || seq == 0 {
		return nil
	}
	return &jetstream.PubAck{Stream: string(name), Sequence: seq}
}

// Ring puts up the session's bell, without waiting for the broker; a bell
// that hangs already stays the only one.
func (s *Store) Ring(session string) error {
	if err := s.nc.Publish(s.names.Bell(session), nil); err != nil {
		return explain("ringing", err)
	}
	return nil
}

// NextInput gives the session's first input after the sequence, of the given
// kind or, if that is "", of any. A malformed one comes with its Err set.
// ErrNoInput if there is none.
func (s *Store) NextInput(ctx context.Context, session string, kind subjects.Kind, after uint64) (*Input, error) {
	if _, err := subjects.ParseSession(session); err != nil {
		return nil, err
	}
	subject := s.names.Inputs(session)
	if kind != "" {
		subject = s.names.Input(session, kind)
	}
	m, err := s.next(ctx, s.names.InboxStream(), subject, after+1)
	if errors.Is(err, errNotFound) {
		return nil, ErrNoInput
	}
	if err != nil {
		return nil, explain("reading the inbox", err)
	}
	return s.readInput(ctx, m)
}

// Inputs lists what waits in the session's inbox, in order; an input that is
// being consumed may still be among it.
func (s *Store) Inputs(ctx context.Context, session string) iter.Seq2[*Input, error] {
	return func(yield func(*Input, error) bool) {
		for after := uint64(0); ; {
			in, err := s.NextInput(ctx, session, "", after)
			if errors.Is(err, ErrNoInput) || !yield(in, err) || err != nil {
				return
			}
			after = in.Ref.Seq
		}
	}
}

func (s *Store) readInput(ctx context.Context, m *message) (*Input, error) {
	session, kind, err := s.names.ParseInput(m.subject)
	if err != nil {
		return nil, err
	}
	in := &Input{
		Ref: InputRef{Kind: kind, Seq: m.seq}, Session: session,
		Raw: m.data, Time: m.time, TraceParent: m.header.Get(subjects.HeaderTraceParent),
	}
	// A stranger's number that is none redrives nothing.
	in.Redrive, _ = strconv.ParseUint(m.header.Get(subjects.HeaderRedrive), 10, 64)
	if ref, ok := parseBlob(m.data); ok {
		in.blob = ownBlob(session, m.data)
		if ref.Size > uint64(s.opts.MaxInputBytes) {
			in.Err = fmt.Errorf("%w: %w: blob has %d bytes, at most %d are allowed", ErrMalformed, ErrTooLarge, ref.Size, s.opts.MaxInputBytes)
			return in, nil
		}
		data, err := s.getBlob(ctx, ref)
		switch {
		case errors.Is(err, jetstream.ErrObjectNotFound), errors.Is(err, jetstream.ErrDigestMismatch), errors.Is(err, errBlobSize):
			in.Err = fmt.Errorf("%w: %w", ErrMalformed, err)
			return in, nil
		case err != nil:
			return nil, err
		}
		in.Raw = data
	}
	if in.parse(kind, in.Raw) == nil && in.ID == "" {
		// A stranger's own message id serves as well.
		if id := strings.TrimPrefix(m.header.Get(jetstream.MsgIDHeader), session+"/"); len(id) <= MaxInputID {
			in.ID = id
		}
	}
	in.Ref.ID = in.ID
	return in, nil
}

// ownBlob is the object that an input's payload refers to; "" if there is none,
// or if it is another session's, which is not ours to delete.
func ownBlob(session string, data []byte) string {
	if ref, ok := parseBlob(data); ok && strings.HasPrefix(ref.Blob, session+"/") {
		return ref.Blob
	}
	return ""
}

// DeleteInput forgets an input and its blob. That it is gone already is no
// error.
func (s *Store) DeleteInput(ctx context.Context, in *Input) error {
	if err := s.deleteMessage(ctx, s.names.InboxStream(), in.Ref.Seq); err != nil {
		return explain("deleting an input", err)
	}
	if in.blob == "" {
		return nil
	}
	return explain("deleting blob "+in.blob, s.deleteBlob(ctx, in.blob))
}

// WatchInputs calls f with the session of each input of the kind that is
// published from now on, at once and without any promise, until stop is
// called. f must not block. It is how an abort reaches a running worker
// within milliseconds; the inbox makes it certain.
func (s *Store) WatchInputs(kind subjects.Kind, f func(session string)) (stop func() error, err error) {
	sub, err := s.nc.Subscribe(s.names.AllInputs(kind), func(m *nats.Msg) {
		if session, _, err := s.names.ParseInput(m.Subject); err == nil {
			f(session)
		}
	})
	if err != nil {
		return nil, explain("watching inputs", err)
	}
	return sub.Unsubscribe, nil
}
