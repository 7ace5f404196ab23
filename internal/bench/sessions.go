package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
)

// prompts is figure 6: prompts of one short turn, each in a session of its own,
// published before the worker starts.
func prompts(ctx context.Context, b *bench) ([]row, error) {
	n := pick(b.options, 600, 5000)
	a := answer{tokens: 1, turns: 1}
	ids := b.sessions(n)
	if err := b.publish(ctx, ids, a.prompt()); err != nil {
		return nil, err
	}
	w, err := b.watch(n)
	if err != nil {
		return nil, err
	}
	if _, err := b.work("", 64); err != nil {
		return nil, err
	}
	d, err := w.wait(ctx)
	if err != nil {
		return nil, err
	}
	rate := row{Figure: "6 prompts settled per second", Value: float64(n) / d.Seconds(), Unit: "/s"}
	if jobs, err := b.river(ctx, pick(b.options, 2000, 10_000)); err == nil {
		rate = rate.against(jobs)
		rate.Note = "floor: no-op jobs of River on PostgreSQL in this run"
		rate = rate.want("ratio >= 1", rate.Ratio >= 1)
	} else {
		rate.Note = "not compared: " + err.Error()
	}
	trips, err := b.roundTrips(ctx)
	return append([]row{rate}, trips...), err
}

// roundTrips counts what the worker sends to the broker for a prompt; the list
// is from a subscription to everything.
func (b *bench) roundTrips(ctx context.Context) ([]row, error) {
	const n = 200
	pause(ctx, time.Second) // the ringer and the bells of the prompts before
	var mu sync.Mutex       // guards counts
	counts := map[string]int{}
	sub, err := b.nc.Subscribe(">", func(m *nats.Msg) {
		if kind := b.trip(m); kind != "" {
			mu.Lock()
			defer mu.Unlock()
			counts[kind]++
		}
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := errors.Join(sub.SetPendingLimits(-1, -1), b.nc.Flush()); err != nil {
		return nil, err
	}
	before, err := b.ask("stats")
	if err != nil {
		return nil, err
	}
	// One after the other: no two sessions share a request.
	for _, id := range b.sessions(n) {
		w, err := b.watch(1)
		if err != nil {
			return nil, err
		}
		if err := b.publish(ctx, []string{id}, answer{tokens: 1, turns: 1}.prompt()); err != nil {
			return nil, err
		}
		if _, err := w.wait(ctx); err != nil {
			return nil, err
		}
	}
	pause(ctx, 200*time.Millisecond)
	after, err := b.ask("stats")
	if err != nil {
		return nil, err
	}
	total := float64(after.OutMsgs-before.OutMsgs) / n
	mu.Lock()
	defer mu.Unlock()
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		per := float64(counts[kind]) / n
		if per < 0.05 {
			continue // beats and boards, by time
		}
		list = append(list, kind+" "+number(per))
	}
	// What is waited for until agent_settled: the publisher's own, the fold, a
	// look into the inbox by the claim and one behind the answer, and the
	// appends. The pull waits at the broker before; nobody waits for the
	// deletion; summary, the bell's removal and the last look come after.
	const publish, lastLook = 1, 1
	trips := publish - lastLook + float64(counts[tripFold]+counts[tripFormer]+counts[tripLook]+counts[tripAppend])/n
	return []row{
		row{Figure: "6 round trips from publish to settled", Value: trips, Unit: "trips",
			Note: "publish, fold, former summary, two looks into the inbox, the rest appends"}.want("<= 9", trips <= 9.05),
		{Figure: "6 messages of the worker for a prompt", Value: total, Unit: "messages",
			Note: "by subject, deliveries and the publisher's included: " + strings.Join(list, ", ")},
	}, nil
}

// Kinds of messages that a prompt waits for.
const (
	tripFold   = "STREAM.MSG.GET.AGENT_EVENTS"
	tripFormer = "DIRECT.GET.KV_AGENT_SESSIONS.$KV"
	tripLook   = "DIRECT.GET.AGENT_INBOX"
	tripAppend = "append"
)

// trip names a message to the broker, "" for everything that is the broker's or
// the publisher's own.
func (b *bench) trip(m *nats.Msg) string {
	switch s := m.Subject; {
	case strings.HasPrefix(s, "_INBOX"), strings.HasPrefix(s, "$JS.EVENT"), strings.HasPrefix(s, "$SYS"):
		return ""
	case strings.HasPrefix(s, "$JS.ACK."):
		if bytes.HasPrefix(m.Data, []byte("+WPI")) {
			return "beat of the bell"
		}
		if strings.Contains(s, "ringer") {
			return "ack of the ringer"
		}
		return "ack of the bell"
	case strings.HasPrefix(s, "$JS.API."):
		f := strings.Split(strings.TrimPrefix(s, "$JS.API."), ".")
		return strings.Join(f[:min(len(f), 4)], ".")
	case strings.HasPrefix(s, "$KV"):
		return "summary"
	case strings.HasPrefix(s, b.names.Bell("")):
		return "bell"
	case strings.HasSuffix(s, ".events"):
		return tripAppend
	case strings.HasSuffix(s, ".prompt"):
		return "prompt"
	}
	return "other " + m.Subject
}

// manySessions is figure 7.
func manySessions(ctx context.Context, b *bench) ([]row, error) {
	seconds := pick(b.options, 4, 15)
	var rows []row
	for _, n := range pick(b.options, []int{200}, []int{200, 1000, 2000}) {
		if err := b.stopWorkers(); err != nil {
			return rows, err
		}
		r, err := b.streaming(ctx, n, seconds)
		if err != nil {
			return rows, err
		}
		rows = append(rows, r...)
	}
	return rows, nil
}

// streaming measures in the middle of n answers of 50 tokens/s.
func (b *bench) streaming(ctx context.Context, n, seconds int) ([]row, error) {
	w, err := b.work("", n+8)
	if err != nil {
		return nil, err
	}
	// As many sessions at once as later, so that the worker has its pools and its
	// connections to the model, which it keeps.
	if _, _, err := b.streamed(ctx, b.sessions(n), answer{tokens: 10, turns: 1, first: time.Duration(n) * 10 * time.Millisecond}); err != nil {
		return nil, err
	}
	pause(ctx, time.Second)
	idle, err := w.ask("gc")
	if err != nil {
		return nil, err
	}
	a := answer{tokens: 50 * seconds, turns: 1, pace: 20 * time.Millisecond}
	watch, err := b.watch(n)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := b.publish(ctx, b.sessions(n), a.prompt()); err != nil {
		return nil, err
	}
	pause(ctx, time.Duration(seconds)*time.Second/4)
	from, err := w.ask("gc")
	if err != nil {
		return nil, err
	}
	at := time.Now()
	pause(ctx, time.Duration(seconds)*time.Second/2)
	to, err := w.ask("stats")
	if err != nil {
		return nil, err
	}
	window := time.Since(at)
	if _, err := watch.wait(ctx); err != nil {
		return nil, err
	}
	late := time.Since(begun) - time.Duration(seconds)*time.Second
	pause(ctx, time.Second)
	after, err := w.ask("gc")
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("7 %d sessions at 50 tokens/s: ", n)
	cpu := row{Figure: name + "CPU of one", Value: ms(to.CPU-from.CPU) / window.Seconds() / float64(n), Unit: "ms/s",
		Note: fmt.Sprintf("answers were %.1f s late at the end", late.Seconds())}
	mem := row{Figure: name + "memory of one", Value: float64(to.RSS-idle.RSS) / float64(n) / 1024, Unit: "KiB",
		Note: fmt.Sprintf("RSS; live heap and stacks %.0f KiB", float64(from.Heap-idle.Heap)/float64(n)/1024)}
	left := row{Figure: name + "memory of an idle one", Value: float64(after.Heap-idle.Heap) / float64(n) / 1024, Unit: "KiB",
		Note: "heap and stacks after, less before"}
	return []row{cpu, mem.want("<= 150 KiB", mem.Value <= 150), left.want("0", left.Value < 0.5)}, nil
}

// coldClaims is figure 8: a fold of logs that are ten and a hundred times as
// long, and a run whose log must not grow with its transcript.
func coldClaims(ctx context.Context, b *bench) ([]row, error) {
	store, err := session.Open(ctx, b.nc, b.names, nil)
	if err != nil {
		return nil, err
	}
	var rows []row
	var perMessage float64
	for _, n := range []int{10, 1000, 10_000} {
		id := b.sessions(1)[0]
		if err := writeLog(ctx, store, id, n); err != nil {
			return nil, err
		}
		var took []float64
		for range 5 {
			begun := time.Now()
			st, err := store.Fold(ctx, id)
			if err != nil {
				return nil, err
			}
			if got := len(st.Transcript.Messages()); got != n {
				return nil, fmt.Errorf("%d messages in a fold of %d", got, n)
			}
			took = append(took, ms(time.Since(begun)))
		}
		r := row{Figure: fmt.Sprintf("8 cold claim of %d messages", n), Value: median(took), Unit: "ms"}
		if n == 10_000 {
			r = r.against(perMessage * float64(n))
			r.Note = "floor: ten times that of 1,000"
			r = r.want("ratio <= 1.2", r.Ratio <= 1.2)
		}
		perMessage = r.Value / float64(n)
		rows = append(rows, r)
	}
	growth, err := b.turnGrowth(ctx)
	return append(rows, growth), err
}

// writeLog writes a log of n messages, prompts and answers of 2,000 bytes.
func writeLog(ctx context.Context, store *session.Store, id string, n int) error {
	st, err := store.Fold(ctx, id)
	if err != nil {
		return err
	}
	l, err := store.OpenLog(ctx, id, st, "bench")
	if err != nil {
		return err
	}
	text := strings.Repeat("a word or two. ", 130)
	for i := range n {
		var m loop.Message = loop.NewUserText(text)
		if i%2 == 1 {
			m = &loop.AssistantMessage{Content: []loop.Block{&loop.Text{Text: text}}, StopReason: loop.StopStop, Model: "bench"}
		}
		if err := l.AppendAll(ctx, []loop.Event{&loop.MessageStart{Message: m}, &loop.MessageEnd{Message: m}}); err != nil {
			return err
		}
	}
	return l.Close(ctx)
}

// turnGrowth compares the log of a run on a long transcript after all its tool
// calls with that of a run of half as many.
func (b *bench) turnGrowth(ctx context.Context) (row, error) {
	if _, err := b.work("", 8); err != nil {
		return row{}, err
	}
	turns := pick(b.options, 60, 500)
	long := strings.Repeat("a transcript of many tokens ", 200_000*4/28)
	var size [2]float64
	for i, n := range []int{turns / 2, turns} {
		w, err := b.watch(1)
		if err != nil {
			return row{}, err
		}
		a := answer{tokens: 1, turns: n + 1}
		if err := b.publish(ctx, b.sessions(1), long+a.prompt()); err != nil {
			return row{}, err
		}
		if _, err := w.wait(ctx); err != nil {
			return row{}, err
		}
		size[i] = float64(w.bytes - len(long))
	}
	r := row{Figure: "8 log of " + strconv.Itoa(turns) + " tool calls on 200,000 tokens", Value: size[1] / 1024, Unit: "KiB",
		Note: "floor: twice the log of half as many calls"}.against(2 * size[0] / 1024)
	return r.want("ratio <= 1.05", r.Ratio <= 1.05), nil
}

// threeWorkers is figure 9.
func threeWorkers(ctx context.Context, b *bench) ([]row, error) {
	const slots = 8
	n := pick(b.options, 400, 3000)
	a := answer{tokens: 20, turns: 1, first: 20 * time.Millisecond}
	rate := map[int]float64{}
	var cpu time.Duration
	for _, workers := range []int{1, 3} {
		if err := b.stopWorkers(); err != nil {
			return nil, err
		}
		for range workers {
			if _, err := b.work("", slots); err != nil {
				return nil, err
			}
		}
		if err := b.drain(ctx); err != nil {
			return nil, err
		}
		broker, err := b.broker.ask("stats")
		if err != nil {
			return nil, err
		}
		used, took, err := b.streamed(ctx, b.sessions(n), a)
		if err != nil {
			return nil, err
		}
		broker2, err := b.broker.ask("stats")
		if err != nil {
			return nil, err
		}
		rate[workers] = float64(n) / took.Seconds()
		cpu = (used + broker2.CPU - broker.CPU) / time.Duration(max(1, int(took.Seconds()*1000))) * 1000
	}
	r := row{Figure: "9 prompts/s of three workers", Value: rate[3], Unit: "/s",
		Note: fmt.Sprintf("floor: one worker; %d slots each, 20 ms a prompt; workers and broker used %.2f of the machine's cores", slots, cpu.Seconds())}.against(rate[1])
	return []row{r.want("ratio >= 2.7", r.Ratio >= 2.7)}, nil
}
