package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/secret"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/subjects"
	"github.com/pi-worker/pi-worker/tools"
)

func TestTheOldestOutputsAreTooMany(t *testing.T) {
	sized := func(n int, size int64) []session.Object {
		list := make([]session.Object, n)
		for i := range list {
			list[i].Size = size
		}
		return list
	}
	for i, c := range []struct {
		kept []session.Object
		want int
	}{
		{nil, 0}, {sized(maxOutputs, 1), 0}, {sized(maxOutputs+3, 1), 3},
		{sized(4, 64<<20), 0}, {sized(5, 64<<20), 1}, {sized(1, maxOutputBytes+1), 0}, {sized(2, maxOutputBytes+1), 1},
	} {
		if got := tooMany(c.kept); got != c.want {
			t.Errorf("case %d: %d, want %d", i, got, c.want)
		}
	}
}

// Over the cap the oldest output goes, whichever owner stored it, and those of
// other sessions stay.
func TestOldestOutputGoesOverTheCap(t *testing.T) {
	e := natstest.Start(t, nil)
	if err := subjects.Ensure(t.Context(), e.JS, subjects.Names{}, nil); err != nil {
		t.Fatal(err)
	}
	store, err := session.Open(t.Context(), e.NC, subjects.Names{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	owner := func(id string) *outputs {
		objects, err := store.Objects(id, session.HeadingOutput)
		if err != nil {
			t.Fatal(err)
		}
		return &outputs{objects: objects, owned: t.Context(), mask: secret.New(), log: slog.New(slog.DiscardHandler)}
	}
	put := func(o *outputs, n int) {
		t.Helper()
		if _, err := o.Put(t.Context(), fmt.Sprint(n), strings.NewReader(fmt.Sprint("output ", n))); err != nil {
			t.Fatal(err)
		}
	}
	other, first, second := owner("other"), owner("s"), owner("s")
	put(other, 0)
	for n := range maxOutputs - 1 {
		put(first, n)
	}
	for n := range 3 {
		put(second, maxOutputs-1+n)
	}
	for n := range maxOutputs + 2 {
		in, err := first.Get(t.Context(), fmt.Sprint(n))
		if n < 2 {
			if !errors.Is(err, tools.ErrNoOutput) {
				t.Errorf("output %d: %v, want none", n, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("output %d: %v", n, err)
		}
		if got, err := io.ReadAll(in); err != nil || string(got) != fmt.Sprint("output ", n) {
			t.Errorf("output %d is %q, %v", n, got, err)
		}
		in.Close()
	}
	if in, err := other.Get(t.Context(), "0"); err != nil {
		t.Errorf("another session's: %v", err)
	} else {
		in.Close()
	}
}

// The stored form has no value that results would not have, wherever the pieces
// end, and each time it is read.
func TestStoredOutputIsMasked(t *testing.T) {
	text := strings.Repeat("x", 64<<10-4) + "sk-12345678 and sk-1234"
	want := strings.Repeat("x", 64<<10-4) + "[secret] and sk-1234"
	for name, in := range map[string]io.ReadSeeker{
		"whole": strings.NewReader(text), "in small pieces": small{bytes.NewReader([]byte(text))},
	} {
		m := &maskedOutput{in: in, mask: secret.New("sk-12345678")}
		for range 2 {
			if _, err := m.Seek(0, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(m)
			if err != nil || string(got) != want || m.size != int64(len(want)) {
				t.Errorf("%s: …%s (%d, said %d), %v", name, got[len(got)-40:], len(got), m.size, err)
			}
		}
	}
}

// small gives a few bytes at a time.
type small struct{ io.ReadSeeker }

func (s small) Read(p []byte) (int, error) { return iotest.OneByteReader(s.ReadSeeker).Read(p) }
