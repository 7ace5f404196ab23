package worker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/internal/natstest"
	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
	"github.com/pi-worker/pi-worker/subjects"
)

// inBubble runs a test where leases and pauses pass in virtual time.
func inBubble(t *testing.T, answers []looptest.Answer, f func(b *bench)) {
	t.Helper()
	natstest.InBubble(t, nil, func(t *testing.T, e *natstest.Env) {
		f(newBench(t, benchOptions{env: e, memory: true, answers: answers}))
	})
}

// count counts the events of a type.
func (b *bench) count(id, eventType string) int {
	b.Helper()
	n := 0
	for _, ev := range b.events(id) {
		if ev.EventType() == eventType {
			n++
		}
	}
	return n
}

// results are the tool results of the transcript, by tool name.
func (b *bench) results(id string) map[string]string {
	b.Helper()
	out := map[string]string{}
	for _, ev := range b.events(id) {
		if end, ok := ev.(*loop.MessageEnd); ok {
			if r, ok := end.Message.(*loop.ToolResultMessage); ok {
				out[r.ToolName] += text(r.Content)
			}
		}
	}
	return out
}

func TestKilledWorkerResumed(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		hold := make(chan struct{})
		b.script.Add(looptest.Reply{Text: "half an answer", Hold: hold}, looptest.Text("a whole answer"))
		w1 := b.start("w1", nil)
		b.say("s1", subjects.KindPrompt, "hi")
		b.await("s1", "message_update")
		w1.die()
		close(hold)
		killed := time.Now()
		b.start("w2", nil)
		got := b.settle("s1", 1)
		b.wantOutcomes(got, loop.OutcomeCompleted)
		if d := time.Since(killed); d > b.ackWait*3/2+time.Second {
			b.Errorf("takeover took %v with AckWait %v", d, b.ackWait)
		}
		if got[0].Attempts != 2 {
			b.Errorf("%d attempts, want 2", got[0].Attempts)
		}
		for typ, want := range map[string]int{
			"session_claimed": 2, "run_lost": 1, "run_released": 0, "run_resumed": 1, "message_discarded": 1, "agent_start": 1, "agent_end": 1,
		} {
			if n := b.count("s1", typ); n != want {
				b.Errorf("%d %s, want %d", n, typ, want)
			}
		}
		b.wantUsers("s1", "hi")
		b.inboxEmpty("s1")
		b.check("s1")
		b.wantLost("s1", "w1")
	})
}

// wantLost looks for run_lost behind the second session_claimed, in its record.
func (b *bench) wantLost(id, worker string) {
	b.Helper()
	recs := b.records(id)
	for i, rec := range recs {
		lost, ok := rec.Events[len(rec.Events)-1].(*loop.RunLost)
		if !ok {
			continue
		}
		if len(rec.Events) != 2 || rec.Events[0].EventType() != "session_claimed" {
			b.Errorf("the record of run_lost is %v, want it behind session_claimed", types(rec.Events))
		}
		before := recs[i-1]
		if lost.Worker != worker || lost.Epoch != before.Epoch.String() || lost.Since != before.Time.UnixMilli() {
			b.Errorf("%+v, want worker %s, epoch %s, since %d", lost, worker, before.Epoch, before.Time.UnixMilli())
		}
		return
	}
	b.Errorf("no record ends in run_lost:\n%s", b.dump(id))
}

func types(evs []loop.Event) (types []string) {
	for _, ev := range evs {
		types = append(types, ev.EventType())
	}
	return types
}

// After SIGKILL of the whole fleet nobody has to clean anything up: the next
// worker finds every run, says that it was lost, and goes on with it.
func TestKilledFleetNeedsNoCleanUp(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		const sessions = 12
		hold := make(chan struct{})
		b.script.Otherwise(func(r *looptest.Request) looptest.Answer {
			select {
			case <-hold:
				return looptest.Text("a whole answer")
			default:
				return looptest.Reply{Text: "half an answer", Hold: hold}
			}
		})
		var fleet []*live
		for i := range 3 {
			fleet = append(fleet, b.start(fmt.Sprint("w", i), func(c *Config) { c.Sessions = 4 }))
		}
		for i := range sessions {
			b.say(fmt.Sprint("s", i), subjects.KindPrompt, "first")
		}
		for i := range sessions {
			b.await(fmt.Sprint("s", i), "message_update")
			b.say(fmt.Sprint("s", i), subjects.KindPrompt, "second")
		}
		for _, w := range fleet {
			w.die()
		}
		close(hold)
		sleep(b.Context(), time.Hour) // nobody is there
		b.start("heir", nil)
		for i := range sessions {
			id := fmt.Sprint("s", i)
			b.wantOutcomes(b.settle(id, 2), loop.OutcomeCompleted, loop.OutcomeCompleted)
			b.wantUsers(id, "first", "second")
			if lost, resumed := b.count(id, "run_lost"), b.count(id, "run_resumed"); lost != 1 || resumed != 1 {
				b.Errorf("%s: %d run_lost and %d run_resumed, want one each", id, lost, resumed)
			}
			b.inboxEmpty(id)
			b.check(id)
		}
	})
}

// journal is a pair of tools: one ends at once, the other waits.
type journal struct {
	mu    sync.Mutex
	runs  map[string]int
	keys  map[string][]string
	block chan struct{}
}

func (j *journal) tools(idempotent bool) []loop.Tool {
	run := func(ctx context.Context, call loop.Call) (loop.ToolResult, error) {
		j.mu.Lock()
		j.runs[call.Name]++
		n := j.runs[call.Name]
		j.keys[call.Name] = append(j.keys[call.Name], call.Key)
		j.mu.Unlock()
		if call.Name == "slow" && n == 1 {
			select {
			case <-j.block:
			case <-ctx.Done():
				return loop.ToolResult{}, context.Cause(ctx)
			}
		}
		return loop.TextResult(fmt.Sprint("run ", n)), nil
	}
	return []loop.Tool{
		&tool{spec: loop.ToolSpec{Name: "quick"}, run: run},
		&tool{spec: loop.ToolSpec{Name: "slow", Idempotent: idempotent}, run: run},
	}
}

func killInTool(t *testing.T, idempotent bool, check func(b *bench, j *journal)) {
	t.Helper()
	inBubble(t, []looptest.Answer{
		looptest.Calls(looptest.Call{Name: "quick"}, looptest.Call{Name: "slow"}), looptest.Text("done"),
	}, func(b *bench) {
		j := &journal{runs: map[string]int{}, keys: map[string][]string{}, block: make(chan struct{})}
		agent := withAgent(Agent{Tools: j.tools(idempotent)})
		w1 := b.start("w1", agent)
		b.say("s1", subjects.KindPrompt, "hi")
		b.await("s1", "tool_execution_end")
		w1.die()
		b.start("w2", agent)
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		check(b, j)
		b.check("s1")
	})
}

func TestFinishedToolNeverRunAgain(t *testing.T) {
	killInTool(t, false, func(b *bench, j *journal) {
		if j.runs["quick"] != 1 || j.runs["slow"] != 1 {
			b.Errorf("tools ran %v, want each once", j.runs)
		}
		got := b.results("s1")
		if got["quick"] != "run 1" || got["slow"] != loop.Interrupted {
			b.Errorf("results %q, want the finished one kept and the other unknown", got)
		}
	})
}

func TestIdempotentToolRunAgainWithSameKey(t *testing.T) {
	killInTool(t, true, func(b *bench, j *journal) {
		if j.runs["quick"] != 1 || j.runs["slow"] != 2 {
			b.Errorf("tools ran %v, want quick once and slow twice", j.runs)
		}
		if k := j.keys["slow"]; len(k) != 2 || k[0] != k[1] || k[0] == "" || k[0] == j.keys["quick"][0] {
			b.Errorf("keys %q: want the same for both attempts, and none of another call", j.keys)
		}
	})
}

func TestAbortReachesResumedRun(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		hold := make(chan struct{})
		b.script.Add(looptest.Reply{Text: "half an answer", Hold: hold}, looptest.Text("the next prompt's"))
		w1 := b.start("w1", nil)
		b.say("s1", subjects.KindPrompt, "hi")
		b.await("s1", "message_update")
		w1.die()
		close(hold)
		b.abort("s1", "keep")
		b.say("s1", subjects.KindPrompt, "next")
		b.start("w2", nil)
		b.wantOutcomes(b.settle("s1", 2), loop.OutcomeAborted, loop.OutcomeCompleted)
		if n := len(b.script.Requests()); n != 2 {
			b.Errorf("%d requests, want 2: an aborted run asks no model", n)
		}
		b.inboxEmpty("s1")
		b.check("s1")
	})
}

func TestPoisonRunDeadLettered(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		hold := make(chan struct{})
		b.script.Otherwise(func(r *looptest.Request) looptest.Answer {
			if r.LastUser() == "poison" {
				return looptest.Reply{Text: "half", Hold: hold}
			}
			return looptest.Text("ok")
		})
		const attempts = 3
		limit := func(c *Config) { c.MaxAttempts = attempts }
		b.say("s1", subjects.KindPrompt, "poison")
		b.say("s1", subjects.KindPrompt, "fine")
		for i := range attempts {
			w := b.start(fmt.Sprint("w", i+1), limit)
			updates := 0
			b.watch("s1", func(ev loop.Event) bool {
				if ev.EventType() == "message_update" {
					updates++
				}
				return updates > i*2+1 // two for each attempt: text_start, text_delta
			})
			w.die()
		}
		close(hold)
		b.start("last", limit)
		got := b.settle("s1", 2)
		b.wantOutcomes(got, loop.OutcomeDeadLetter, loop.OutcomeCompleted)
		if got[0].Attempts != attempts {
			b.Errorf("%d attempts, want %d", got[0].Attempts, attempts)
		}
		b.wantDead("s1", 1)
		b.inboxEmpty("s1")
		b.check("s1")
	})
}

func TestFencedWorkerStops(t *testing.T) {
	inBubble(t, []looptest.Answer{callWork, looptest.Text("after")}, func(b *bench) {
		s := newStepping()
		w1 := b.start("w1", s.agent())
		b.say("s1", subjects.KindPrompt, "hi")
		<-s.started
		// Somebody else takes the log while w1 believes in its lease.
		st, err := b.store.Fold(b.Context(), "s1")
		if err != nil {
			b.Fatal(err)
		}
		log, err := b.store.OpenLog(b.Context(), "s1", st, "thief")
		if err != nil {
			b.Fatal(err)
		}
		stolen := log.Epoch()
		if err := log.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		close(s.release)
		for w1.Sessions() > 0 {
			sleep(b.Context(), 10*time.Millisecond)
		}
		recs := b.records("s1")
		if last := recs[len(recs)-1]; last.Epoch != stolen {
			b.Errorf("the fenced worker wrote after the fence:\n%s", b.dump("s1"))
		}
		if n := len(b.script.Requests()); n != 1 {
			b.Errorf("%d requests, want 1: a fenced worker asks no model", n)
		}
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		if got := b.results("s1")["work"]; got != loop.Interrupted {
			b.Errorf("result %q: the end of the call was never in the log", got)
		}
		b.check("s1")
	})
}

func TestSigtermHandsOver(t *testing.T) {
	t.Run("the turn ends within the grace period", func(t *testing.T) {
		inBubble(t, []looptest.Answer{callWork, looptest.Text("done")}, func(b *bench) {
			s := newStepping()
			w1 := b.start("w1", func(c *Config) { s.agent()(c); c.Grace = time.Minute })
			b.say("s1", subjects.KindPrompt, "hi")
			<-s.started
			b.start("w2", s.agent())
			w1.stop()
			sleep(b.Context(), 10*time.Second)
			close(s.release)
			<-w1.done
			stopped := time.Now()
			b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
			if d := time.Since(stopped); d > time.Second {
				b.Errorf("the other worker went on after %v", d)
			}
			if got := b.results("s1")["work"]; got != "done" || s.runs.Load() != 1 {
				b.Errorf("result %q after %d runs, want the tool's own after one", got, s.runs.Load())
			}
			if n := b.count("s1", "run_lost"); n != 0 || b.count("s1", "run_released") != 1 {
				b.Errorf("%d run_lost after an orderly hand-over:\n%s", n, b.dump("s1"))
			}
			b.check("s1")
		})
	})
	t.Run("the grace period passes", func(t *testing.T) {
		inBubble(t, []looptest.Answer{callWork, looptest.Text("done")}, func(b *bench) {
			s := newStepping()
			w1 := b.start("w1", s.agent())
			b.say("s1", subjects.KindPrompt, "hi")
			<-s.started
			w1.stop()
			<-w1.done
			stopped := time.Now()
			b.start("w2", s.agent())
			b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
			if d := time.Since(stopped); d > time.Second {
				b.Errorf("the other worker went on after %v: the bell was not released", d)
			}
			if got := b.results("s1")["work"]; got != loop.Interrupted {
				b.Errorf("result %q, want unknown", got)
			}
			if n := b.count("s1", "run_lost"); n != 0 || b.count("s1", "run_released") != 1 {
				b.Errorf("%d run_lost after an orderly hand-over:\n%s", n, b.dump("s1"))
			}
			b.check("s1")
		})
	})
}

func TestWaitingEvent(t *testing.T) {
	inBubble(t, []looptest.Answer{
		looptest.Reply{Calls: []looptest.Call{{Name: "nap"}}, Delay: 40 * time.Second}, looptest.Text("done"),
	}, func(b *bench) {
		nap := &tool{spec: loop.ToolSpec{Name: "nap"}, run: func(ctx context.Context, _ loop.Call) (loop.ToolResult, error) {
			sleep(ctx, 50*time.Second)
			return loop.TextResult("awake"), nil
		}}
		b.start("w1", withAgent(Agent{Tools: []loop.Tool{nap}}))
		began := time.Now()
		b.say("s1", subjects.KindPrompt, "hi")
		sleep(b.Context(), 2*time.Minute)
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		var last time.Time
		got := map[string]int{}
		for _, rec := range b.records("s1") {
			if !last.IsZero() && rec.Time.Sub(last) > 15*time.Second+time.Second/2 {
				b.Errorf("silence of %v before %s", rec.Time.Sub(last), rec.Lines[0])
			}
			last = rec.Time
			for _, ev := range rec.Events {
				if w, ok := ev.(*loop.Waiting); ok {
					got[w.For]++
					if w.Since < began.UnixMilli() || w.Since > rec.Time.UnixMilli() {
						b.Errorf("waiting since %d, outside of the run", w.Since)
					}
				}
			}
		}
		if got["model"] != 2 || got["tool"] != 3 {
			b.Errorf("waiting events %v, want 2 for the model and 3 for the tool", got)
		}
	})
}

func TestLongRunDeliveredOnce(t *testing.T) {
	inBubble(t, []looptest.Answer{callWork, looptest.Text("done")}, func(b *bench) {
		s := newStepping()
		b.start("w1", s.agent())
		b.start("w2", s.agent())
		b.say("s1", subjects.KindPrompt, "hi")
		<-s.started
		sleep(b.Context(), 30*time.Minute)
		close(s.release)
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		if n := b.count("s1", "session_claimed"); n != 1 || s.runs.Load() != 1 {
			b.Errorf("%d claims, %d runs of the tool, want one each", n, s.runs.Load())
		}
	})
}

func TestBrokenAnswerRetried(t *testing.T) {
	b := newBench(t, benchOptions{answers: []looptest.Answer{
		looptest.Reply{Text: "this will break", CutAfter: 2}, looptest.Text("whole"),
	}})
	b.start("w1", withAgent(Agent{Retry: loop.RetryPolicy{MaxRetries: 2, BaseDelay: time.Millisecond, MidStream: true}}))
	b.say("s1", subjects.KindPrompt, "hi")
	b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
	for _, typ := range []string{"auto_retry_start", "auto_retry_end", "message_discarded"} {
		if n := b.count("s1", typ); n != 1 {
			t.Errorf("%d %s, want 1\n%s", n, typ, b.dump("s1"))
		}
	}
}

func TestOpenRunStaysWithLivingOwner(t *testing.T) {
	inBubble(t, []looptest.Answer{looptest.Text("done")}, func(b *bench) {
		alive := true // written only while nobody asks
		stop, err := b.store.ServeOwns("ghost", func(string) bool { return alive })
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = stop() }()
		seq := b.say("s1", subjects.KindPrompt, "hi")
		st, err := b.store.Fold(b.Context(), "s1")
		if err != nil {
			b.Fatal(err)
		}
		log, err := b.store.OpenLog(b.Context(), "s1", st, "ghost")
		if err != nil {
			b.Fatal(err)
		}
		user := loop.NewUserText("hi")
		evs := []loop.Event{&loop.AgentStart{}, &loop.TurnStart{}, &loop.MessageStart{Message: user}, &loop.MessageEnd{Message: user}}
		if err := log.AppendAll(b.Context(), evs, session.InputRef{Kind: subjects.KindPrompt, Seq: seq}); err != nil {
			b.Fatal(err)
		}
		if err := log.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.start("w1", nil)
		sleep(b.Context(), time.Minute)
		if n := b.count("s1", "session_claimed"); n != 1 {
			b.Fatalf("%d claims: the session was taken from an owner that lives", n)
		}
		alive = false
		b.wantOutcomes(b.settle("s1", 1), loop.OutcomeCompleted)
		b.check("s1")
	})
}
