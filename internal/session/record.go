package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// inputInfo is what Pi-Input-Info says of one input, in the order of
// Pi-Input.
type inputInfo struct {
	ID       string        `json:"id,omitempty"`
	Options  *InputOptions `json:"options,omitempty"`
	Returned bool          `json:"returned,omitempty"`
	Early    bool          `json:"early,omitempty"`
}

// setInputs writes the headers of consumed inputs.
func setInputs(h nats.Header, refs []InputRef) error {
	if len(refs) == 0 {
		return nil
	}
	var list strings.Builder
	infos := make([]inputInfo, len(refs))
	told := false
	for i, ref := range refs {
		if i > 0 {
			list.WriteByte(',')
		}
		list.WriteString(string(ref.Kind) + ":" + strconv.FormatUint(ref.Seq, 10))
		infos[i].ID, infos[i].Returned, infos[i].Early = ref.ID, ref.Returned, ref.Early
		if !ref.Options.IsZero() {
			infos[i].Options = ref.Options
		}
		told = told || infos[i] != inputInfo{}
	}
	h.Set(subjects.HeaderInput, list.String())
	if !told {
		return nil
	}
	b, err := json.Marshal(infos)
	if err != nil {
		return fmt.Errorf("encoding inputs: %w", err)
	}
	h.Set(subjects.HeaderInputInfo, string(b))
	return nil
}

// parseInputs reads what setInputs wrote. Records of other writers may lack
// the info.
func parseInputs(list, info string) ([]InputRef, error) {
	if list == "" {
		return nil, nil
	}
	var infos []inputInfo
	if info != "" {
		if err := json.Unmarshal([]byte(info), &infos); err != nil {
			return nil, fmt.Errorf("header %s: %w", subjects.HeaderInputInfo, err)
		}
	}
	var refs []InputRef
	for item := range strings.SplitSeq(list, ",") {
		name, num, ok := strings.Cut(item, ":")
		kind, err := subjects.ParseKind(name)
		seq, err2 := strconv.ParseUint(num, 10, 64)
		if !ok || err != nil || err2 != nil || seq == 0 {
			return nil, fmt.Errorf("header %s: %.80q", subjects.HeaderInput, list)
		}
		ref := InputRef{Kind: kind, Seq: seq}
		if i := len(refs); i < len(infos) {
			info := infos[i]
			ref.ID, ref.Options, ref.Returned, ref.Early = info.ID, info.Options, info.Returned, info.Early
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// head is what the headers of a record say.
type head struct {
	epoch    Epoch
	seq, sub uint64
	settled  uint64
}

func parseHead(h nats.Header) (hd head, err error) {
	if hd.epoch, err = ParseEpoch(h.Get(subjects.HeaderEpoch)); err != nil {
		return head{}, err
	}
	for _, f := range []struct {
		name string
		into *uint64
	}{{subjects.HeaderSeq, &hd.seq}, {subjects.HeaderSub, &hd.sub}, {subjects.HeaderSettled, &hd.settled}} {
		v := h.Get(f.name)
		if v == "" {
			continue
		}
		if *f.into, err = strconv.ParseUint(v, 10, 64); err != nil {
			return head{}, fmt.Errorf("header %s: %.80q", f.name, v)
		}
	}
	if hd.seq == 0 {
		return head{}, fmt.Errorf("header %s is missing", subjects.HeaderSeq)
	}
	return hd, nil
}

// isForeign says that a message on the events subject is no worker's: it has
// no epoch. Anybody who may publish there can write one, so readers pass over
// it; the fence makes the owner fold again.
func isForeign(h nats.Header) bool { return h.Get(subjects.HeaderEpoch) == "" }

// readHead makes a Record of a message's headers, without its events.
func readHead(session string, seq uint64, at time.Time, h nats.Header) (*Record, error) {
	hd, err := parseHead(h)
	if err == nil {
		var inputs []InputRef
		inputs, err = parseInputs(h.Get(subjects.HeaderInput), h.Get(subjects.HeaderInputInfo))
		if err == nil {
			return &Record{
				Session: session, StreamSeq: seq, Seq: hd.seq, Sub: hd.sub, Epoch: hd.epoch, Time: at,
				Inputs: inputs, Settled: hd.settled, TraceParent: h.Get(subjects.HeaderTraceParent),
			}, nil
		}
	}
	return nil, fmt.Errorf("%w: session %s, stream sequence %d: %w", ErrBroken, session, seq, err)
}

// readLines splits a payload into lines, one for each event, and resolves
// their blobs.
func (s *Store) readLines(ctx context.Context, rec *Record, data []byte) error {
	rec.Lines = make([][]byte, 0, 1+bytes.Count(data, newline))
	for line := range bytes.SplitSeq(data, newline) {
		if len(line) == 0 {
			continue
		}
		if ref, ok := parseBlob(line); ok {
			var err error
			if line, err = s.getBlob(ctx, ref); err != nil {
				return fmt.Errorf("record %d of session %s: %w", rec.StreamSeq, rec.Session, err)
			}
		}
		var err error
		if rec.Lines, err = unpack(rec.Lines, line); err != nil {
			return fmt.Errorf("%w: session %s, stream sequence %d: %w", ErrBroken, rec.Session, rec.StreamSeq, err)
		}
	}
	return nil
}

// parseLines fills Events from Lines.
func (rec *Record) parseLines() error {
	rec.Events = make([]loop.Event, 0, len(rec.Lines))
	for _, line := range rec.Lines {
		ev, err := loop.ParseWire(line)
		if err != nil {
			return fmt.Errorf("%w: session %s, stream sequence %d: %w", ErrBroken, rec.Session, rec.StreamSeq, err)
		}
		rec.Events = append(rec.Events, ev)
	}
	return nil
}

var newline = []byte{'\n'}
