package check

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// use is what became of one inbox message.
type use struct {
	kind      string
	seq       uint64
	id        string
	reason    string // of input_returned, "" if it was delivered
	delivered bool
	times     int
}

// call is one tool call of a session.
type call struct {
	started, ended int
	end            time.Time
	interrupted    bool
	failed         bool // ended with an error of the loop or of the tool
}

// ownership is one epoch.
type ownership struct {
	worker string
	from   time.Time
}

// openRun is the run that is going on.
type openRun struct {
	prompt uint64
	ended  bool // agent_end was seen
}

// log follows one session.
type log struct {
	r          *Report
	known      *ledger
	session    string
	kills      []Kill
	transcript *loop.Transcript

	seq, sub   uint64
	epoch      string
	epochN     uint64
	epochs     map[string]bool
	ownerships []ownership
	last       time.Time // of the last record
	released   bool      // the last owner gave the open run back in good order

	run     *openRun
	uses    map[uint64]*use // by inbox sequence
	cursors map[string]uint64
	settled map[uint64]int
	began   map[uint64]bool // runs by the sequence of their prompt
	calls   map[string]*call
	edits   map[uint64]string // texts that were put in the place of an input's
}

func newLog(r *Report, known *ledger, id string, kills []Kill) *log {
	return &log{
		r: r, known: known, session: id, kills: kills, transcript: &loop.Transcript{},
		epochs: map[string]bool{}, uses: map[uint64]*use{}, cursors: map[string]uint64{},
		settled: map[uint64]int{}, began: map[uint64]bool{}, calls: map[string]*call{}, edits: map[uint64]string{},
	}
}

func (l *log) violate(rec *Record, format string, args ...any) {
	l.r.violate("session %s, record %d (stream %d): "+format, append([]any{l.session, l.seq, rec.StreamSeq}, args...)...)
}

func get(h map[string][]string, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64) // what is no number is 0, which no rule accepts
	return n
}

// record takes the next message of the session.
func (l *log) record(rec *Record) {
	epoch := get(rec.Header, "Pi-Epoch")
	if epoch == "" {
		return // a stranger's
	}
	l.r.Records++
	l.numbers(rec)
	var evs []loop.Event
	for line := range bytes.SplitSeq(rec.Data, []byte("\n")) {
		ev, err := loop.ParseWire(line)
		if err != nil {
			l.violate(rec, "event %.80q: %v", line, err)
			return
		}
		evs = append(evs, ev)
	}
	l.r.Events += len(evs)
	l.owner(rec, epoch, evs)
	refs := l.consume(rec, evs)
	for i, ev := range evs {
		l.event(rec, ev, i, refs)
	}
	l.last = rec.Time
}

// numbers are dense.
func (l *log) numbers(rec *Record) {
	seq, sub := number(get(rec.Header, "Pi-Seq")), number(get(rec.Header, "Pi-Sub"))
	switch {
	case sub == 0 && seq != l.seq+1:
		l.violate(rec, "number %d follows %d", seq, l.seq)
	case sub > 0 && (seq != l.seq || sub != l.sub+1):
		l.violate(rec, "number %d.%d follows %d.%d", seq, sub, l.seq, l.sub)
	}
	l.seq, l.sub = seq, sub
}

// owner: one writer for each epoch, epochs in order, each opened by
// session_claimed and by nothing else.
func (l *log) owner(rec *Record, epoch string, evs []loop.Event) {
	claimed, _ := evs[0].(*loop.SessionClaimed)
	if epoch == l.epoch {
		if claimed != nil {
			l.violate(rec, "epoch %s is claimed twice", epoch)
		}
		return
	}
	text, _, _ := strings.Cut(epoch, "-")
	n := number(text)
	switch {
	case l.epochs[epoch]:
		l.violate(rec, "epoch %s writes again, after %s", epoch, l.epoch)
	case n <= l.epochN:
		l.violate(rec, "epoch %s follows %s", epoch, l.epoch)
	case n != l.epochN+1:
		l.violate(rec, "epoch %s follows %s: one is missing", epoch, l.epoch)
	}
	if claimed == nil {
		l.violate(rec, "epoch %s begins without session_claimed", epoch)
	} else {
		if claimed.Epoch != epoch {
			l.violate(rec, "session_claimed says epoch %s in a record of %s", claimed.Epoch, epoch)
		}
		l.takeover(rec)
		l.lost(rec, evs)
		l.ownerships = append(l.ownerships, ownership{claimed.Worker, rec.Time})
		l.r.Claims++
	}
	l.epoch, l.epochN = epoch, max(n, l.epochN)
	l.epochs[epoch] = true
}

// lost: an open run changes hands after a word of its owner, or the next one
// says that there was none.
func (l *log) lost(rec *Record, evs []loop.Event) {
	released := l.released
	l.released = false
	var lost *loop.RunLost
	for _, ev := range evs {
		if e, ok := ev.(*loop.RunLost); ok {
			lost = e
		}
	}
	switch open := l.run != nil && !l.run.ended; {
	case lost == nil && open && !released:
		l.violate(rec, "an open run changes hands, and neither run_released nor run_lost says so")
	case lost != nil && released:
		l.violate(rec, "run_lost of a run that was given back")
	case lost != nil && len(l.ownerships) > 0 && lost.Worker != l.ownerships[len(l.ownerships)-1].worker:
		l.violate(rec, "run_lost names %s, which was not the owner", lost.Worker)
	}
}

// takeover measures how long an open run had no worker after a kill.
func (l *log) takeover(rec *Record) {
	if l.run == nil || len(l.ownerships) == 0 {
		return
	}
	before := l.ownerships[len(l.ownerships)-1]
	for _, k := range l.kills {
		if k.Worker == before.worker && !k.Time.Before(before.from) {
			l.r.Takeovers = append(l.r.Takeovers, rec.Time.Sub(k.Time))
		}
	}
}

// consume notes what the record spends: each input once, each kind in order.
func (l *log) consume(rec *Record, evs []loop.Event) []*use {
	list := get(rec.Header, "Pi-Input")
	if list == "" {
		return nil
	}
	var infos []struct {
		ID       string `json:"id"`
		Returned bool   `json:"returned"`
		Early    bool   `json:"early"` // out of its turn: a cancelled one
	}
	if info := get(rec.Header, "Pi-Input-Info"); info != "" {
		if err := json.Unmarshal([]byte(info), &infos); err != nil {
			l.violate(rec, "Pi-Input-Info: %v", err)
		}
	}
	reasons := map[uint64]string{}
	for _, ev := range evs {
		if ret, ok := ev.(*loop.InputReturned); ok {
			reasons[ret.Seq] = ret.Reason
		}
	}
	var refs []*use
	for i, item := range strings.Split(list, ",") {
		kind, num, _ := strings.Cut(item, ":")
		u := &use{kind: kind, seq: number(num), times: 1}
		early := false
		if i < len(infos) {
			u.id, early = infos[i].ID, infos[i].Early
		}
		u.reason = reasons[u.seq]
		u.delivered = u.reason == "" && hasMessage(kind)
		if early && u.delivered {
			l.violate(rec, "%s is delivered out of its turn", item)
		}
		if u.delivered && i < len(infos) && infos[i].Returned {
			l.violate(rec, "%s is marked as returned, and no event says so", item)
		}
		if old := l.uses[u.seq]; old != nil {
			l.violate(rec, "%s is consumed again", item)
			old.times++
		} else {
			l.uses[u.seq] = u
		}
		if !early {
			if u.seq <= l.cursors[kind] {
				l.violate(rec, "%s is consumed after %s:%d", item, kind, l.cursors[kind])
			}
			l.cursors[kind] = max(l.cursors[kind], u.seq)
		}
		if u.delivered {
			refs = append(refs, u)
		}
	}
	return refs
}

// hasMessage names the kinds of inputs that can become a message.
func hasMessage(kind string) bool { return kind == "prompt" || kind == "steer" || kind == "followup" }

// event follows the runs: never two at once, each settled once.
func (l *log) event(rec *Record, ev loop.Event, i int, refs []*use) {
	if err := l.transcript.Apply(ev); err != nil {
		l.violate(rec, "%s: %v", ev.EventType(), err)
	}
	switch ev := ev.(type) {
	case *loop.SessionClaimed:
		if i != 0 {
			l.violate(rec, "session_claimed in the middle of a record")
		}
		return
	case *loop.InputReturned:
		if l.uses[ev.Seq] == nil {
			l.violate(rec, "input_returned for %s:%d, which the record does not consume", ev.Kind, ev.Seq)
		}
		l.edited(ev)
		return
	case *loop.LeaseLost:
		if l.run != nil {
			l.violate(rec, "lease_lost in a run")
		}
		return
	case *loop.AgentStart:
		l.start(rec, refs)
		return
	case *loop.AgentSettled:
		l.settle(rec, ev)
		return
	case *loop.UnknownEvent:
		if ev.Type == "checkpoint" && (l.run == nil || l.run.ended) {
			return // says nothing new
		}
		l.violate(rec, "unknown event %s", ev.Type)
		return
	}
	if l.run == nil || l.run.ended {
		l.violate(rec, "%s outside of a run", ev.EventType())
		return
	}
	l.inRun(rec, ev, i, refs)
}

func (l *log) start(rec *Record, refs []*use) {
	if l.run != nil {
		l.violate(rec, "a run begins while that of prompt %d is open", l.run.prompt)
	}
	l.run = &openRun{}
	l.r.Runs++
	if len(refs) == 0 {
		l.violate(rec, "a run begins without an input")
		return
	}
	l.run.prompt = refs[0].seq
	l.began[l.run.prompt] = true
}

func (l *log) settle(rec *Record, ev *loop.AgentSettled) {
	l.settled[ev.PromptSeq]++
	l.r.Outcomes[ev.Outcome]++
	if l.settled[ev.PromptSeq] > 1 {
		l.violate(rec, "agent_settled of %d for the second time", ev.PromptSeq)
	}
	if l.run == nil || l.run.prompt != ev.PromptSeq {
		if l.began[ev.PromptSeq] {
			l.violate(rec, "agent_settled of %d, whose run is not the open one", ev.PromptSeq)
		}
		return // an input that never began
	}
	if !l.run.ended {
		l.violate(rec, "agent_settled of %d before agent_end", ev.PromptSeq)
	}
	l.run = nil
}

func (l *log) inRun(rec *Record, ev loop.Event, i int, refs []*use) {
	switch ev := ev.(type) {
	case *loop.AgentEnd:
		l.run.ended = !ev.WillContinue
	case *loop.RunResumed:
		l.r.Resumed++
	case *loop.RunLost:
		l.r.Lost++
		if i == 0 {
			l.violate(rec, "run_lost without session_claimed before it")
		}
	case *loop.RunReleased:
		l.released = true
	case *loop.MessageDiscarded:
		l.r.Discarded++
	case *loop.MessageEnd:
		if u, ok := ev.Message.(*loop.UserMessage); ok {
			l.said(rec, u, refs)
		}
	case *loop.ToolExecutionStart:
		c := l.call(ev.ToolCallID)
		if c.started++; c.started > 1 {
			l.violate(rec, "call %s starts for the second time", ev.ToolCallID)
		}
	case *loop.ToolExecutionEnd:
		l.toolEnd(rec, ev)
	}
}

// said: a user's message is in the log because this record consumes its input.
func (l *log) said(rec *Record, m *loop.UserMessage, refs []*use) {
	text := userText(m)
	for _, u := range refs {
		in := l.known.bySeq[u.seq]
		if in == nil {
			in = l.known.byID[key(l.session, u.id)]
		}
		if in == nil {
			return
		}
		want, edited := l.edits[u.seq]
		if !edited {
			want = in.Text
		}
		if text == want {
			return
		}
	}
	l.violate(rec, "message %.60q is of no input that the record consumes", text)
}

// edited notes a message that takes the place of an input's.
func (l *log) edited(ev *loop.InputReturned) {
	if ev.Kind != "queue" || ev.Reason != "done" || len(ev.Input) == 0 {
		return
	}
	var change struct {
		Seq     uint64          `json:"seq"`
		Message json.RawMessage `json:"message"`
	}
	if json.Unmarshal(ev.Input, &change) != nil {
		return
	}
	if m, err := loop.ParseMessage(change.Message); err == nil {
		if u, ok := m.(*loop.UserMessage); ok {
			l.edits[change.Seq] = userText(u)
		}
	}
}

func userText(m *loop.UserMessage) string {
	var text string
	for _, b := range m.Content {
		if t, ok := b.(*loop.Text); ok {
			text += t.Text
		}
	}
	return text
}

func (l *log) call(id string) *call {
	c := l.calls[id]
	if c == nil {
		c = &call{}
		l.calls[id] = c
	}
	return c
}

func (l *log) toolEnd(rec *Record, ev *loop.ToolExecutionEnd) {
	c := l.call(ev.ToolCallID)
	if c.started == 0 {
		l.violate(rec, "call %s ends without a start", ev.ToolCallID)
	}
	if c.ended++; c.ended > 1 {
		l.violate(rec, "call %s ends for the second time", ev.ToolCallID)
	}
	c.end, c.failed = rec.Time, ev.IsError
	for _, b := range ev.Result.Content {
		if t, ok := b.(*loop.Text); ok && strings.Contains(t.Text, loop.Interrupted) {
			c.interrupted = true
		}
	}
	if c.interrupted {
		l.r.Unknown++
	} else {
		l.r.Tools++
	}
}

// end: nothing is left open.
func (l *log) end() {
	if l.run != nil {
		l.r.violate("session %s: the run of prompt %d was never settled", l.session, l.run.prompt)
	}
	if err := l.transcript.Open(); err != nil {
		l.r.violate("session %s: the transcript has an open run", l.session)
	}
}

// ownerAt is the worker that the log says was the owner then.
func (l *log) ownerAt(t time.Time) string {
	worker := ""
	for _, o := range l.ownerships {
		if o.from.After(t) {
			break
		}
		worker = o.worker
	}
	return worker
}
