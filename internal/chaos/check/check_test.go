package check

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// story is a log in the making, in which a test changes one thing.
type story struct {
	c     Case
	epoch string
	seq   uint64
}

// say appends a record; inputs is the Pi-Input header and its info.
func (s *story) say(inputs, info string, evs ...loop.Event) *Record {
	s.seq++
	h := map[string][]string{"Pi-Epoch": {s.epoch}, "Pi-Seq": {fmt.Sprint(s.seq)}}
	if inputs != "" {
		h["Pi-Input"] = []string{inputs}
	}
	if info != "" {
		h["Pi-Input-Info"] = []string{info}
	}
	var data []byte
	for i, ev := range evs {
		if i > 0 {
			data = append(data, '\n')
		}
		data = loop.AppendWire(data, ev)
	}
	n := len(s.c.Records)
	s.c.Records = append(s.c.Records, Record{
		Session: "s", StreamSeq: uint64(10 + n), Time: start.Add(time.Duration(n) * time.Second), Header: h, Data: data,
	})
	return &s.c.Records[n]
}

func (s *story) claim(worker, epoch string, also ...loop.Event) {
	s.epoch = epoch
	s.say("", "", append([]loop.Event{&loop.SessionClaimed{Worker: worker, Epoch: epoch}}, also...)...)
}

func (s *story) begin(seq uint64, text string) {
	m := loop.NewUserText(text)
	s.say(fmt.Sprint("prompt:", seq), "", &loop.AgentStart{}, &loop.TurnStart{}, &loop.MessageStart{Message: m}, &loop.MessageEnd{Message: m})
}

func (s *story) answer(blocks ...loop.Block) {
	m := &loop.AssistantMessage{Content: blocks, StopReason: loop.StopStop}
	s.say("", "", &loop.MessageStart{Message: m}, &loop.MessageEnd{Message: m})
}

func (s *story) settle(seq uint64) {
	s.say("", "", &loop.TurnEnd{}, &loop.AgentEnd{}, &loop.AgentSettled{Outcome: loop.OutcomeCompleted, PromptSeq: seq})
}

func (s *story) asked(seq uint64, text string) {
	s.c.Inputs = append(s.c.Inputs, &Input{Session: "s", Kind: "prompt", ID: fmt.Sprint("p", seq), Text: text, Seqs: []uint64{seq}})
}

// tool is a call that was executed once and ended.
func (s *story) tool() {
	s.say("", "", &loop.ToolExecutionStart{ToolCallID: "c1", ToolName: "pay"})
	s.say("", "", &loop.ToolExecutionEnd{ToolCallID: "c1", ToolName: "pay", Result: loop.TextResult("done")})
	s.c.Effects = append(s.c.Effects, Effect{Session: "s", Key: "s/1/0/0", CallID: "c1", Worker: "b", Time: start.Add(4500 * time.Millisecond)})
}

// good is a session with two prompts, a takeover and a tool.
//
//	0 claim, 1 begin, 2 claim, 3 resumed, 4 start, 5 end, 6 settle, 7 begin, 8 answer, 9 settle
func good() *story {
	s := &story{}
	s.asked(1, "one")
	s.asked(2, "two")
	s.claim("a", "1-x")
	s.begin(1, "one")
	s.claim("b", "2-y", &loop.RunLost{Worker: "a", Epoch: "1-x"})
	s.say("", "", &loop.RunResumed{Attempt: 2})
	s.tool()
	s.settle(1)
	s.begin(2, "two")
	s.answer(&loop.Text{Text: "hello"})
	s.settle(2)
	s.c.Kills = []Kill{{Worker: "a", Time: start.Add(1500 * time.Millisecond)}}
	return s
}

func TestAGoodLogIsOK(t *testing.T) {
	s := good()
	r := Run(&s.c)
	if len(r.Violations) > 0 {
		t.Fatalf("%q", r.Violations)
	}
	if r.Delivered != 2 || r.Runs != 2 || r.Claims != 2 || r.Resumed != 1 || r.Lost != 1 || r.Tools != 1 || r.Outcomes[loop.OutcomeCompleted] != 2 {
		t.Errorf("%+v", r)
	}
	if r.Quantile(0.5) != 500*time.Millisecond {
		t.Errorf("takeover is %v", r.Quantile(0.5))
	}
}

func header(s *story, i int, name, value string) { s.c.Records[i].Header[name] = []string{value} }

func TestEveryBrokenPromiseIsSeen(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		change     func(*story)
	}{
		{"a record is lost", "number 5 follows 3", func(s *story) { s.c.Records = slices.Delete(s.c.Records, 3, 4) }},
		{"a record is doubled", "number 4 follows 4", func(s *story) {
			s.c.Records = slices.Insert(s.c.Records, 4, s.c.Records[3])
		}},
		{"a former owner writes", "writes again", func(s *story) { header(s, 5, "Pi-Epoch", "1-x") }},
		{"an epoch goes back", "epoch 1-z follows 2-y", func(s *story) { header(s, 5, "Pi-Epoch", "1-z") }},
		{"two owners have one number", "epoch 2-z follows 2-y", func(s *story) { header(s, 5, "Pi-Epoch", "2-z") }},
		{"an owner does not claim", "begins without session_claimed", func(s *story) { header(s, 5, "Pi-Epoch", "3-z") }},
		{"an input is consumed twice", "prompt:1 is consumed again", func(s *story) { header(s, 7, "Pi-Input", "prompt:1") }},
		{"prompts out of order", "prompt:1 is consumed after prompt:2", func(s *story) {
			header(s, 1, "Pi-Input", "prompt:2")
			header(s, 7, "Pi-Input", "prompt:1")
		}},
		{"a text of no input", "is of no input that the record consumes", func(s *story) { s.c.Inputs[0].Text = "other" }},
		{"an input is lost", "has no outcome", func(s *story) { s.asked(3, "three") }},
		{"an input out of nowhere", "nobody sent it", func(s *story) { s.c.Inputs = s.c.Inputs[:1] }},
		{"one id has two effects", "has 2 outcomes", func(s *story) {
			s.c.Inputs[0].Seqs = []uint64{1, 2}
			s.c.Inputs = s.c.Inputs[:1]
		}},
		{"two runs at once", "while that of prompt 1 is open", func(s *story) { s.c.Records[6].Data = s.c.Records[3].Data }},
		{"settled twice", "for the second time", func(s *story) { s.settle(2) }},
		{"never settled", "was never settled", func(s *story) { s.c.Records = s.c.Records[:9] }},
		{"events after the end", "outside of a run", func(s *story) { s.answer(&loop.Text{Text: "late"}) }},
		{"a tool runs twice", "executed for the second time", func(s *story) {
			s.c.Effects = append(s.c.Effects, s.c.Effects[0])
		}},
		{"a finished tool was never run", "was never executed", func(s *story) { s.c.Effects = nil }},
		{"an idempotent tool runs after its end", "executed again by its owner", func(s *story) {
			e := s.c.Effects[0]
			e.Idempotent, e.Time = true, start.Add(8*time.Second)
			s.c.Effects = append(s.c.Effects, e)
		}},
		{"a tool without a journal", "its start is not in the log", func(s *story) {
			s.c.Effects = append(s.c.Effects, Effect{Session: "s", Key: "s/2/0/0", CallID: "c9", Worker: "b"})
		}},
		{"a run is lost without a word", "neither run_released nor run_lost", func(s *story) {
			s.c.Records[2].Data = []byte(`{"type":"session_claimed","worker":"b","epoch":"2-y"}`)
		}},
		{"run_lost of a run that was given back", "that was given back", func(s *story) {
			s.c.Records[1].Data = append(s.c.Records[1].Data, "\n"+`{"type":"run_released","worker":"a"}`...)
		}},
		{"run_lost of another worker", "which was not the owner", func(s *story) {
			s.c.Records[2].Data = bytes.Replace(s.c.Records[2].Data, []byte(`"a"`), []byte(`"c"`), 1)
		}},
		{"a call starts twice", "starts for the second time", func(s *story) { s.c.Records[3].Data = s.c.Records[4].Data }},
		{"a dead input without a letter", "no letter says so", func(s *story) {
			s.c.Inputs = append(s.c.Inputs, &Input{Session: "s", Kind: "steer", ID: "m", Seqs: []uint64{3}, Malformed: true})
			s.say("steer:3", "", &loop.InputReturned{Kind: "steer", Seq: 3, Reason: "dead_letter"})
		}},
		{"malformed and delivered", "is malformed: true", func(s *story) { s.c.Inputs[0].Malformed = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := good()
			tt.change(s)
			r := Run(&s.c)
			if !slices.ContainsFunc(r.Violations, func(v string) bool { return strings.Contains(v, tt.want) }) {
				t.Errorf("want %q, got %q", tt.want, r.Violations)
			}
		})
	}
}

func TestAStrangersRecordIsPassedOver(t *testing.T) {
	s := good()
	s.c.Records = slices.Insert(s.c.Records, 3, Record{Session: "s", StreamSeq: 99, Data: []byte("hello")})
	if r := Run(&s.c); len(r.Violations) > 0 {
		t.Fatalf("%q", r.Violations)
	}
}
