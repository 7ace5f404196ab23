package session_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
)

// One event, acknowledged before the next: the latency of a barrier.
func BenchmarkAppendFlush(b *testing.B) {
	e := start(b)
	l := e.open("s", "w")
	ev := waiting(1)
	b.ReportAllocs()
	for b.Loop() {
		e.must(l.Append(b.Context(), ev))
		e.must(l.Flush(b.Context()))
	}
	e.close(l)
}

// Deltas as a model streams them, with a barrier at the end only.
func BenchmarkAppendStream(b *testing.B) {
	e := start(b)
	l := e.open("s", "w")
	ev := delta("some words")
	b.ReportAllocs()
	for b.Loop() {
		e.must(l.Append(b.Context(), ev))
	}
	e.must(l.Flush(b.Context()))
	e.close(l)
}

// The reader of a cold session: one read, linear in its records.
func BenchmarkFold(b *testing.B) {
	for _, n := range []int{0, 10, 100, 1000, 10000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			e := start(b)
			l := e.open("s", "w")
			for i := range n / 5 {
				ref := session.InputRef{Kind: subjects.KindPrompt, Seq: uint64(i) + 1, ID: fmt.Sprint("id", i)}
				e.must(l.Append(b.Context(), &loop.AgentStart{}, ref))
				e.append(l, &loop.TurnStart{})
				e.append(l, user("a question of some length, as people ask them"))
				e.append(l, &loop.TurnEnd{})
				e.append(l, &loop.AgentSettled{Outcome: loop.OutcomeCompleted})
			}
			e.close(l)
			b.ReportAllocs()
			for b.Loop() {
				e.fold("s")
			}
		})
	}
}

// Bell to bell: ring, claim, remove.
func BenchmarkClaim(b *testing.B) {
	e := start(b)
	b.ReportAllocs()
	e.must(e.store.Ring("s"))
	n := 0
	for c, err := range e.store.Claims(b.Context(), nil) {
		e.must(err)
		e.must(c.Remove(b.Context()))
		if n++; n >= b.N {
			break
		}
		e.must(e.store.Ring("s"))
	}
}

// A prompt from the client to the inbox.
func BenchmarkPublish(b *testing.B) {
	e := start(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e.publish("s"+strconv.Itoa(i/32), subjects.KindPrompt, "do something")
	}
}

// What ps does with ten thousand sessions.
func BenchmarkSummaries(b *testing.B) {
	e := start(b)
	const n = 10000
	for i := range n {
		e.must(e.store.PutSummary(b.Context(), &session.Summary{Session: "s" + strconv.Itoa(i), State: "idle", Worker: "w"}))
	}
	b.ReportAllocs()
	for b.Loop() {
		got := 0
		for _, err := range e.store.Summaries(b.Context()) {
			e.must(err)
			got++
		}
		if got != n {
			b.Fatalf("%d summaries, want %d", got, n)
		}
	}
}
