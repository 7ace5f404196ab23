package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/subjects"
)

// Dead is an input that could not be done.
type Dead struct {
	Seq      uint64 // stream sequence in the dead letters
	Session  string
	Kind     subjects.Kind
	ID       string
	InputSeq uint64 // stream sequence that it had in the inbox
	Reason   string
	Error    string // last error
	Attempts int    // claims that were made
	Raw      []byte // the whole input
	Time     time.Time
}

// DeadLetter puts an input, with the reason, into the dead letters. It stays
// in the inbox until DeleteInput; doing it twice leaves one letter.
func (s *Store) DeadLetter(ctx context.Context, in *Input, reason string, attempts int, lastError string) error {
	msg := nats.NewMsg(s.names.DLQ(in.Session))
	msg.Data = in.Raw
	if len(in.Raw) > s.limit() {
		var err error
		if msg.Data, _, err = s.putBlob(ctx, in.Session, "", "", in.Raw); err != nil {
			return explain("storing a large dead letter", err)
		}
	}
	h := msg.Header
	h.Set(jetstream.MsgIDHeader, in.Session+"/"+string(in.Ref.Kind)+"/"+strconv.FormatUint(in.Ref.Seq, 10))
	h.Set(subjects.HeaderKind, string(in.Ref.Kind))
	h.Set(subjects.HeaderInput, string(in.Ref.Kind)+":"+strconv.FormatUint(in.Ref.Seq, 10))
	h.Set(subjects.HeaderReason, oneLine(reason))
	h.Set(subjects.HeaderAttempts, strconv.Itoa(attempts))
	if in.ID != "" {
		h.Set(subjects.HeaderID, oneLine(in.ID))
	}
	if lastError != "" {
		h.Set(subjects.HeaderError, oneLine(lastError))
	}
	_, err := s.publishAgain(ctx, msg)
	return explain("writing a dead letter", err)
}

// oneLine makes a header's value of any text.
func oneLine(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' || r == 0 }), " ")
	if len(s) > 1024 {
		s = strings.ToValidUTF8(s[:1024], "") + "…"
	}
	return s
}

// DeadLetters lists the dead letters of a session, or of all if it is "",
// oldest first, up to the last one there is.
func (s *Store) DeadLetters(ctx context.Context, session string) iter.Seq2[*Dead, error] {
	return func(yield func(*Dead, error) bool) {
		if session == "" {
			session = "*"
		} else if _, err := subjects.ParseSession(session); err != nil {
			yield(nil, err)
			return
		}
		for seq := uint64(1); ; {
			m, err := s.next(ctx, s.names.DLQStream(), s.names.DLQ(session), seq)
			if errors.Is(err, errNotFound) {
				return
			}
			if err != nil {
				yield(nil, explain("reading dead letters", err))
				return
			}
			seq = m.seq + 1
			d, err := s.readDead(ctx, m)
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

func (s *Store) readDead(ctx context.Context, m *message) (*Dead, error) {
	session, err := s.names.ParseDLQ(m.subject)
	if err != nil {
		return nil, err
	}
	d := &Dead{
		Seq: m.seq, Session: session, Kind: subjects.Kind(m.header.Get(subjects.HeaderKind)),
		ID: m.header.Get(subjects.HeaderID), Reason: m.header.Get(subjects.HeaderReason),
		Error: m.header.Get(subjects.HeaderError), Raw: m.data, Time: m.time,
	}
	// Letters of other writers may lack any of these; zero then says unknown.
	d.Attempts, _ = strconv.Atoi(m.header.Get(subjects.HeaderAttempts))
	if refs, err := parseInputs(m.header.Get(subjects.HeaderInput), ""); err == nil && len(refs) > 0 {
		d.InputSeq = refs[0].Seq
	}
	if ref, ok := parseBlob(m.data); ok {
		data, err := s.getBlob(ctx, ref)
		switch {
		case errors.Is(err, jetstream.ErrObjectNotFound): // perhaps the very reason of the letter: show the reference
		case err != nil:
			return nil, err
		default:
			d.Raw = data
		}
	}
	return d, nil
}

// Dead reads one dead letter. ErrNoInput if there is none.
func (s *Store) Dead(ctx context.Context, seq uint64) (*Dead, error) {
	m, err := s.next(ctx, s.names.DLQStream(), s.names.DLQ("*"), seq)
	if errors.Is(err, errNotFound) || err == nil && m.seq != seq {
		return nil, fmt.Errorf("%w: no dead letter has the sequence %d", ErrNoInput, seq)
	}
	if err != nil {
		return nil, explain("reading dead letters", err)
	}
	return s.readDead(ctx, m)
}

// Redrive publishes the input of a dead letter again, under a new id, or with
// sameID under the one that it had, and removes the letter. Doing it twice
// publishes once. Errors are those of Publish, ErrMalformed among them for an
// input that could only be dead-lettered again, and ErrNoInput.
func (s *Store) Redrive(ctx context.Context, seq uint64, sameID bool) (*Dead, Receipt, error) {
	d, err := s.Dead(ctx, seq)
	if err != nil {
		return nil, Receipt{}, err
	}
	in := &Input{Ref: InputRef{Kind: d.Kind}, Session: d.Session}
	if err := in.parse(d.Kind, d.Raw); err != nil {
		return d, Receipt{}, fmt.Errorf("session: dead letter %d: %w", seq, err)
	}
	in.Redrive = seq
	switch {
	case !sameID:
		// Made of the letter, so that a redrive that is repeated is the same.
		in.ID = "redrive-" + strconv.FormatUint(seq, 10) + "-" + strconv.FormatInt(d.Time.UnixNano(), 36)
	case in.ID == "":
		in.ID = d.ID
	}
	r, err := s.Publish(ctx, d.Session, d.Kind, in)
	if err != nil {
		return d, Receipt{}, err
	}
	return d, r, s.DeleteDead(ctx, seq)
}

// DeleteDead removes a dead letter and its blob. ErrNoInput if there is none.
func (s *Store) DeleteDead(ctx context.Context, seq uint64) error {
	m, err := s.next(ctx, s.names.DLQStream(), s.names.DLQ("*"), seq)
	if errors.Is(err, errNotFound) || err == nil && m.seq != seq {
		return fmt.Errorf("%w: no dead letter has the sequence %d", ErrNoInput, seq)
	}
	if err != nil {
		return explain("reading dead letters", err)
	}
	if err := s.deleteMessage(ctx, s.names.DLQStream(), seq); err != nil {
		return explain("deleting a dead letter", err)
	}
	if ref, ok := parseBlob(m.data); ok {
		return explain("deleting blob "+ref.Blob, s.deleteBlob(ctx, ref.Blob))
	}
	return nil
}

// deleteMessage deletes one message; one that is gone already is no error.
func (s *Store) deleteMessage(ctx context.Context, stream string, seq uint64) error {
	req, err := json.Marshal(struct {
		Seq     uint64 `json:"seq"`
		NoErase bool   `json:"no_erase"`
	}{seq, true})
	if err != nil {
		return err
	}
	resp, err := s.ask(ctx, &nats.Msg{Subject: s.api + "STREAM.MSG.DELETE." + stream, Data: req})
	if err != nil {
		return err
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(resp.Data, &answer); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	switch e := answer.Error; {
	case e == nil, e.ErrorCode == codeSequenceNotFound, e.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil
	case e.ErrorCode == codeDeleteFailed && strings.Contains(e.Description, "no message found"):
		return nil
	default:
		return e
	}
}
