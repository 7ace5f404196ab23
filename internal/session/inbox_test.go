package session_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

func TestPublishRefusesByName(t *testing.T) {
	b := start(t)
	small, err := session.Open(t.Context(), b.env.NC, subjects.Names{}, &session.Options{MaxInputBytes: 1000})
	b.must(err)
	for _, c := range []struct {
		name    string
		store   *session.Store
		session string
		text    string
		want    error
		says    string
	}{
		{"dot", b.store, "a.b", "hi", subjects.ErrSession, "a.b"},
		{"wildcard", b.store, "*", "hi", subjects.ErrSession, "*"},
		{"65 characters", b.store, strings.Repeat("x", 65), "hi", subjects.ErrSession, "64"},
		{"no session", b.store, "", "hi", subjects.ErrSession, ""},
		{"empty", b.store, "s", "", session.ErrEmptyInput, ""},
		{"blank", b.store, "s", " \n\t", session.ErrEmptyInput, ""},
		{"too large", small, "s", strings.Repeat("x", 2000), session.ErrTooLarge, "1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.store.Publish(t.Context(), c.session, subjects.KindPrompt, &session.Input{Message: loop.NewUserText(c.text)})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %v with %q", err, c.want, c.says)
			}
		})
	}
}

func TestInboxFullRefuses(t *testing.T) {
	b := start(t)
	for i := range subjects.DefaultInboxPerSubject {
		b.publish("s", subjects.KindPrompt, fmt.Sprint("prompt ", i))
	}
	in := &session.Input{Message: loop.NewUserText("one more")}
	if _, err := b.store.Publish(t.Context(), "s", subjects.KindPrompt, in); !errors.Is(err, session.ErrInboxFull) {
		t.Errorf("65th prompt: %v, want ErrInboxFull", err)
	}
	b.publish("s", subjects.KindSteer, "another kind has room")
	b.publish("t", subjects.KindPrompt, "another session has room")
}

func TestMalformedInput(t *testing.T) {
	b := start(t)
	for payload, reason := range map[string]string{
		`{"message": {"role"`: "looks like JSON",
		`[1, 2]`:              "looks like JSON",
		`{}`:                  `no "message"`,
		`{"text": "hi"}`:      `no "message"`,
		`{"message": null}`:   `no "message"`,
		`{"message": ""}`:     "empty input",
		`{"message": {"role": "assistant", "content": []}}`:                      "role",
		`{"message": {"role": "user", "content": []}}`:                           "empty input",
		`{"message": "hi", "options": 3}`:                                        "options",
		`{"message": "hi", "options": {"agent": 3}}`:                             "agent",
		`{"message": "hi", "id": "` + strings.Repeat("x", 257) + `"}`:            "257 bytes",
		`{"message": "hi", "options":{"x":"` + strings.Repeat("y", 2100) + `"}}`: "options have",
		"\xff\xfe": "UTF-8",
		"  \n":     "empty input",
		`{"blob":"gone","size":3,"digest":"SHA-256=x"}`:           "not found",
		`{"blob":"gone","size":99999999999,"digest":"SHA-256=x"}`: "33554432",
		`{"id":"a\nb","message":"hi"}`:                            "control",
	} {
		_, err := b.env.JS.Publish(t.Context(), "agent.s.prompt", []byte(payload))
		b.must(err)
		in, err := b.store.NextInput(t.Context(), "s", "", 0)
		b.must(err)
		if !errors.Is(in.Err, session.ErrMalformed) || !strings.Contains(in.Err.Error(), reason) {
			t.Errorf("%.60s: %v, want ErrMalformed with %q", payload, in.Err, reason)
		}
		b.must(b.store.DeadLetter(t.Context(), in, in.Err.Error(), 0, ""))
		b.must(b.store.DeadLetter(t.Context(), in, in.Err.Error(), 0, ""))
		b.must(b.store.DeleteInput(t.Context(), in))
	}
	n := 0
	for d, err := range b.store.DeadLetters(t.Context(), "s") {
		b.must(err)
		n++
		if d.Session != "s" || d.Kind != subjects.KindPrompt || d.Reason == "" || d.InputSeq == 0 {
			t.Errorf("dead letter %+v lacks something", d)
		}
		b.must(b.store.DeleteDead(t.Context(), d.Seq))
	}
	if n != 17 {
		t.Errorf("%d dead letters, want one for each of 17 inputs", n)
	}
	b.publish("s", subjects.KindPrompt, "the session goes on")
	if in, err := b.store.NextInput(t.Context(), "s", "", 0); err != nil || in.Err != nil {
		t.Errorf("the next input: %v, %v", err, in.Err)
	}
}

func TestInputForms(t *testing.T) {
	b := start(t)
	for _, c := range []struct{ payload, id, text, agent string }{
		{"plain text", "", "plain text", ""},
		{`"quoted"`, "", `"quoted"`, ""},
		{`{"id":"i1","message":"text"}`, "i1", "text", ""},
		{`{"message":{"role":"user","content":"string"}}`, "", "string", ""},
		{`{"id":"i2","message":{"role":"user","content":[{"type":"text","text":"blocks"}]},"options":{"agent":"a","x":1}}`, "i2", "blocks", "a"},
	} {
		_, err := b.env.JS.Publish(t.Context(), "agent.s.steer", []byte(c.payload))
		b.must(err)
		in, err := b.store.NextInput(t.Context(), "s", subjects.KindSteer, 0)
		b.must(err)
		b.must(in.Err)
		text := in.Message.(*loop.UserMessage).Content[0].(*loop.Text).Text
		if in.ID != c.id || in.Ref.ID != c.id || text != c.text || in.Options.Agent != c.agent {
			t.Errorf("%s: id %q, text %q, agent %q", c.payload, in.ID, text, in.Options.Agent)
		}
		b.must(b.store.DeleteInput(t.Context(), in))
		b.must(b.store.DeleteInput(t.Context(), in)) // gone is no error
	}
	if _, err := b.store.NextInput(t.Context(), "s", "", 0); !errors.Is(err, session.ErrNoInput) {
		t.Errorf("empty inbox: %v, want ErrNoInput", err)
	}
	msg := nats.NewMsg("agent.s.abort")
	msg.Data = []byte("stop!")
	_, err := b.env.JS.PublishMsg(t.Context(), msg)
	b.must(err)
	in, err := b.store.NextInput(t.Context(), "s", subjects.KindAbort, 0)
	b.must(err)
	b.must(in.Err)
}

func TestSameIDOneEffect(t *testing.T) {
	b := start(t)
	in := &session.Input{ID: "once", Message: loop.NewUserText("hello"), Options: session.InputOptions{Agent: "a"}}
	first, err := b.store.Publish(t.Context(), "s", subjects.KindPrompt, in)
	b.must(err)
	second, err := b.store.Publish(t.Context(), "s", subjects.KindSteer, in)
	b.must(err)
	if !second.Duplicate || second.Seq != first.Seq {
		t.Errorf("second receipt %+v, want a duplicate of %+v", second, first)
	}
	got, err := b.store.NextInput(t.Context(), "s", "", 0)
	b.must(err)
	l := b.open("s", "w")
	if _, spent := l.Spent(got); spent {
		t.Error("spent before it was consumed")
	}
	b.must(l.Append(t.Context(), &loop.AgentStart{}, got.Ref))
	if _, spent := l.Spent(got); !spent {
		t.Error("not spent after it was consumed")
	}
	b.close(l)
	b.must(b.store.DeleteInput(t.Context(), got))
	// Long after the broker's window, it comes as another message.
	msg := nats.NewMsg("agent.s.prompt")
	msg.Data = got.Raw
	ack, err := b.env.JS.PublishMsg(t.Context(), msg)
	b.must(err)
	again, err := b.store.NextInput(t.Context(), "s", "", 0)
	b.must(err)
	out, spent := b.fold("s").Spent(again)
	if !spent || out.Ref.Seq != first.Seq || again.Ref.Seq != ack.Sequence || out.Ref.Options.Agent != "a" {
		t.Errorf("repeat after a fold: spent %v by %+v, want by %d", spent, out, first.Seq)
	}
}

func TestNextInputIsInStreamOrder(t *testing.T) {
	b := start(t)
	var want []uint64
	for i, kind := range []subjects.Kind{subjects.KindPrompt, subjects.KindSteer, subjects.KindFollowUp, subjects.KindSteer, subjects.KindPrompt} {
		want = append(want, b.publish("s", kind, fmt.Sprint(i)).Seq)
		b.publish("other", kind, fmt.Sprint(i))
	}
	after := uint64(0)
	for _, seq := range want {
		in, err := b.store.NextInput(t.Context(), "s", "", after)
		b.must(err)
		if in.Ref.Seq != seq {
			t.Fatalf("sequence %d, want %d", in.Ref.Seq, seq)
		}
		after = seq
	}
	var listed []uint64
	for in, err := range b.store.Inputs(t.Context(), "s") {
		b.must(err)
		listed = append(listed, in.Ref.Seq)
	}
	if !slices.Equal(listed, want) {
		t.Errorf("listed %v, want %v", listed, want)
	}
}

// Before the first worker there are no streams, and the sender is told so.
func TestPublishWithoutStreams(t *testing.T) {
	env := natstest.Start(t, nil)
	s := openStore(t, env, nil)
	in := &session.Input{Message: loop.NewUserText("hi")}
	if _, err := s.Publish(t.Context(), "s", subjects.KindPrompt, in); !errors.Is(err, session.ErrNoStream) {
		t.Errorf("publish: %v, want ErrNoStream", err)
	}
	for _, err := range s.Read(t.Context(), "s", session.From{}) {
		if !errors.Is(err, session.ErrNoStream) {
			t.Errorf("read: %v, want ErrNoStream", err)
		}
	}
	for _, err := range s.Summaries(t.Context()) {
		if !errors.Is(err, session.ErrNoStream) {
			t.Errorf("summaries: %v, want ErrNoStream", err)
		}
	}
}

func TestBlobWithALyingReferenceIsMalformed(t *testing.T) {
	b := start(t)
	blobs, err := b.env.JS.ObjectStore(t.Context(), subjects.Names{}.BlobBucket())
	b.must(err)
	_, err = blobs.PutString(t.Context(), "x", "hello")
	b.must(err)
	for _, size := range []string{"4", "6", "5"} {
		id := "s" + size
		_, err = b.env.JS.Publish(t.Context(), "agent."+id+".prompt", []byte(`{"blob":"x","size":`+size+`,"digest":"SHA-256=any"}`))
		b.must(err)
		in, err := b.store.NextInput(t.Context(), id, "", 0)
		b.must(err)
		if lies := size != "5"; errors.Is(in.Err, session.ErrMalformed) != lies {
			t.Errorf("size %s: %v", size, in.Err)
		}
		b.must(b.store.DeleteInput(t.Context(), in))
	}
	if _, err := blobs.GetInfo(t.Context(), "x"); err != nil {
		t.Errorf("an input took somebody else's blob along: %v", err)
	}
}
