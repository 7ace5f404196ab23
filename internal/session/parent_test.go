package session_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

func TestParentIsAnObjectOrTheKeyOfACall(t *testing.T) {
	want := session.Parent{Session: "web-7", Run: 17}
	for _, text := range []string{`{"session":"web-7","run":17}`, `"web-7/17"`, `"web-7/17/0/2"`} {
		var o session.InputOptions
		if err := json.Unmarshal([]byte(`{"parent":`+text+`,"other":1}`), &o); err != nil || o.Parent == nil || *o.Parent != want {
			t.Errorf("%s gives %v, %v", text, o.Parent, err)
			continue
		}
		b, err := json.Marshal(o)
		if got := string(b); err != nil || got != `{"other":1,"parent":{"session":"web-7","run":17}}` {
			t.Errorf("written as %s, %v", got, err)
		}
	}
	for _, text := range []string{`"web-7"`, `"web-7/x"`, `"/17"`, `"a b/17"`, `17`} {
		var o session.InputOptions
		if err := json.Unmarshal([]byte(`{"parent":`+text+`}`), &o); err == nil {
			t.Errorf("%s gives %v", text, o.Parent)
		}
	}
}

// run appends a whole run, or its beginning only.
func (b *bench) run(l *session.Log, ref session.InputRef, settled bool) {
	b.Helper()
	b.must(l.AppendAll(b.Context(), []loop.Event{&loop.AgentStart{}, &loop.TurnStart{}, user("hi")}, ref))
	b.append(l, waiting(1))
	if settled {
		b.append(l, &loop.TurnEnd{})
		b.must(l.AppendAll(b.Context(), []loop.Event{&loop.AgentEnd{}, &loop.AgentSettled{
			Outcome: loop.OutcomeLimit, PromptSeq: ref.Seq,
		}}))
	}
	b.must(l.Flush(b.Context()))
}

func TestRunIsFoundFromTheLogsEnd(t *testing.T) {
	b := start(t)
	above := &session.Parent{Session: "above", Run: 1}
	l := b.open("s", "w1")
	for seq := uint64(2); seq <= 40; seq += 2 {
		ref := session.InputRef{Kind: subjects.KindPrompt, Seq: seq, Options: &session.InputOptions{Parent: above}}
		b.run(l, ref, seq < 40)
	}
	find := func(run uint64) string {
		info, err := b.store.FindRun(t.Context(), session.Parent{Session: "s", Run: run})
		b.must(err)
		parent := "none"
		if info.Parent != nil {
			parent = info.Parent.String()
		}
		return fmt.Sprint(info.Begun, " ", info.Outcome, " ", parent)
	}
	wants := map[uint64]string{2: "true limit above/1", 20: "true limit above/1", 38: "true limit above/1", 40: "true  above/1", 41: "false  none"}
	check := func() {
		t.Helper()
		for run, want := range wants {
			if got := find(run); got != want {
				t.Errorf("run %d is %q, want %q", run, got, want)
			}
		}
	}
	check()
	run, err := b.store.OpenRun(t.Context(), "s")
	if b.must(err); run != 40 {
		t.Errorf("run %d is open, want 40", run)
	}
	// A stranger's message at the end hides nothing.
	if _, err := b.env.JS.Publish(t.Context(), "agent.s.events", []byte("boo")); err != nil {
		t.Fatal(err)
	}
	check()
}

func TestRunThatWaitsInTheInboxIsFound(t *testing.T) {
	b := start(t)
	in := &session.Input{Message: loop.NewUserText("hi")}
	in.Options.Parent = &session.Parent{Session: "above", Run: 1}
	r, err := b.store.Publish(t.Context(), "s", subjects.KindPrompt, in)
	b.must(err)
	info, err := b.store.FindRun(t.Context(), session.Parent{Session: "s", Run: r.Seq})
	if b.must(err); info.Begun || info.Parent == nil || *info.Parent != *in.Options.Parent {
		t.Errorf("found %+v", info)
	}
	for _, unknown := range []session.Parent{{Session: "s", Run: r.Seq + 1}, {Session: "nobody", Run: 1}} {
		if info, err := b.store.FindRun(t.Context(), unknown); err != nil || info != (session.RunInfo{}) {
			t.Errorf("%s is %+v, %v", unknown, info, err)
		}
	}
}

// A poll looks only at what has settled since.
func TestSettledRunGoesOnWhereItWas(t *testing.T) {
	b := start(t)
	l := b.open("s", "w1")
	first := session.InputRef{Kind: subjects.KindPrompt, Seq: 5}
	b.run(l, first, false)
	p := session.Parent{Session: "s", Run: 5}
	outcome, seen, err := b.store.SettledRun(t.Context(), p, 0)
	if b.must(err); outcome != "" || seen != 0 {
		t.Errorf("an open run: %q, seen %d", outcome, seen)
	}
	b.must(l.AppendAll(t.Context(), []loop.Event{&loop.TurnEnd{}, &loop.AgentEnd{}, &loop.AgentSettled{Outcome: loop.OutcomeAborted, PromptSeq: 5}}))
	b.run(l, session.InputRef{Kind: subjects.KindPrompt, Seq: 6}, true)
	b.run(l, session.InputRef{Kind: subjects.KindPrompt, Seq: 7}, false)
	if outcome, seen, err = b.store.SettledRun(t.Context(), p, seen); err != nil || outcome != loop.OutcomeAborted {
		t.Errorf("a settled run: %q, %v", outcome, err)
	}
	if outcome, _, err = b.store.SettledRun(t.Context(), p, seen); err != nil || outcome != "" {
		t.Errorf("behind it: %q, %v", outcome, err)
	}
}
