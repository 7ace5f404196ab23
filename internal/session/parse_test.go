package session

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// Whatever a stranger publishes is an input, or malformed with a reason; what
// is accepted comes back the same when it is published again.
func FuzzInput(f *testing.F) {
	for _, s := range []string{
		"hello", "", "{", "[1]", `{"message":"hi"}`, `{"id":"x","message":{"role":"user","content":[{"type":"text","text":"a"}]},"options":{"agent":"b","z":[1]}}`,
		`{"queue":"drop"}`, `{"message":{"role":"assistant"}}`, "\xff", `{"blob":"x","size":1,"digest":"y"}`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, abort bool) {
		kind := subjects.KindPrompt
		if abort {
			kind = subjects.KindAbort
		}
		in := &Input{}
		if err := in.parse(kind, data); err != nil {
			if in.Err == nil {
				t.Fatal("an error that is not kept")
			}
			return
		}
		again, err := in.encode(kind)
		if err != nil {
			t.Fatalf("accepted but not encoded: %v", err)
		}
		back := &Input{}
		if err := back.parse(kind, again); err != nil {
			t.Fatalf("encoded but not accepted: %v\n%s", err, again)
		}
		if back.ID != in.ID || back.Abort != in.Abort || !sameJSON(t, back.Options, in.Options) {
			t.Fatalf("%+v became %+v", in, back)
		}
		if kind == subjects.KindPrompt {
			a, _ := loop.MarshalMessage(in.Message)
			b, _ := loop.MarshalMessage(back.Message)
			if string(a) != string(b) {
				t.Fatalf("%s became %s", a, b)
			}
		}
	})
}

func sameJSON(t *testing.T, a, b any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return string(x) == string(y)
}

// Headers of strangers are refused or read, never a panic; our own come back
// the same.
func FuzzRecordHeaders(f *testing.F) {
	f.Add("1-x", "1", "", "", "", "")
	f.Add("2-abc", "17", "3", "prompt:1,steer:2", `[{"id":"x"},{"options":{"agent":"a"}}]`, "9")
	f.Add("-", "0", "-1", "prompt:0", "{}", "x")
	f.Fuzz(func(t *testing.T, epoch, seq, sub, input, info, settled string) {
		h := nats.Header{}
		for k, v := range map[string]string{
			subjects.HeaderEpoch: epoch, subjects.HeaderSeq: seq, subjects.HeaderSub: sub,
			subjects.HeaderInput: input, subjects.HeaderInputInfo: info, subjects.HeaderSettled: settled,
		} {
			h.Set(k, v)
		}
		hd, err := parseHead(h)
		if err == nil {
			if e, err := ParseEpoch(hd.epoch.String()); err != nil || e != hd.epoch {
				t.Fatalf("epoch %q became %v, %v", epoch, e, err)
			}
		}
		refs, err := parseInputs(input, info)
		if err != nil || len(refs) == 0 {
			return
		}
		out := nats.Header{}
		if err := setInputs(out, refs); err != nil {
			t.Fatal(err)
		}
		back, err := parseInputs(out.Get(subjects.HeaderInput), out.Get(subjects.HeaderInputInfo))
		if err != nil || len(back) != len(refs) {
			t.Fatalf("%v became %v, %v", refs, back, err)
		}
		for i := range refs {
			if back[i].Kind != refs[i].Kind || back[i].Seq != refs[i].Seq || back[i].Returned != refs[i].Returned {
				t.Fatalf("%v became %v", refs[i], back[i])
			}
		}
	})
}
