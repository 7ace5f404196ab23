package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
)

// throughput is figures 1 and 2. The worker and the bare program take turns,
// so that both see the same machine; the median of their ratios counts.
func throughput(ctx context.Context, b *bench) ([]row, error) {
	a := answer{tokens: 200, turns: 3}
	const sessions = 20
	deltas := float64(sessions * a.turns * a.tokens)
	if _, err := b.work("", 64); err != nil {
		return nil, err
	}
	bare, err := b.startBare()
	if err != nil {
		return nil, err
	}
	defer bare.close()
	var cpu, cpuFloor, rate, rateFloor []float64
	for round := range pick(b.options, 7, 15) {
		t, d, err := b.streamed(ctx, b.sessions(sessions), a)
		if err != nil {
			return nil, err
		}
		before, err := bare.ask("stats")
		if err != nil {
			return nil, err
		}
		st, err := b.bareRun(bare, sessions, a)
		if err != nil {
			return nil, err
		}
		if round < 2 {
			continue // connections, pages and caches are cold
		}
		cpu, cpuFloor = append(cpu, ms(t)/deltas*1000), append(cpuFloor, ms(st.CPU-before.CPU)/float64(st.Events)*1000)
		rate, rateFloor = append(rate, deltas/d.Seconds()), append(rateFloor, float64(st.Events)/st.Duration.Seconds())
	}
	one := row{Figure: "1 worker CPU per 1,000 events", Value: median(cpu), Unit: "ms"}.against(median(cpuFloor))
	one.Ratio = medianRatio(cpu, cpuFloor)
	two := row{Figure: "2 events per second", Value: median(rate), Unit: "/s"}.against(median(rateFloor))
	two.Ratio = medianRatio(rate, rateFloor)
	return []row{one.want("ratio <= 1.3", one.Ratio <= 1.3), two.want("ratio >= 0.7", two.Ratio >= 0.7)}, nil
}

// streamed runs one prompt in each session and says what it cost: the workers'
// CPU, and the time from publishing to the last agent_settled.
func (b *bench) streamed(ctx context.Context, ids []string, a answer) (cpu, took time.Duration, err error) {
	before, err := b.ask("stats")
	if err != nil {
		return 0, 0, err
	}
	w, err := b.watch(len(ids))
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	if err := b.publish(ctx, ids, a.prompt()); err != nil {
		return 0, 0, err
	}
	if _, err := w.wait(ctx); err != nil {
		return 0, 0, err
	}
	took = w.last.Sub(begun)
	after, err := b.ask("stats")
	return after.CPU - before.CPU, took, err
}

// bytesPerAnswer is figure 3.
func bytesPerAnswer(ctx context.Context, b *bench) ([]row, error) {
	if _, err := b.work("", 8); err != nil {
		return nil, err
	}
	if err := b.drain(ctx); err != nil {
		return nil, err
	}
	var rows []row
	for _, a := range []answer{
		{tokens: 200, turns: 1}, {tokens: 1000, turns: 1}, {tokens: 4000, turns: 1}, {tokens: 100_000, turns: 1},
		{tokens: pick(b.options, 50, 200), turns: 1, pace: 20 * time.Millisecond},
	} {
		r, err := b.answerBytes(ctx, a)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r...)
	}
	return rows, nil
}

// drain runs one prompt, so that connections are open and settled.
func (b *bench) drain(ctx context.Context) error {
	_, _, err := b.streamed(ctx, b.sessions(1), answer{tokens: 10, turns: 2})
	return err
}

func (b *bench) answerBytes(ctx context.Context, a answer) ([]row, error) {
	id := b.sessions(1)
	stored, err := b.stored(ctx, b.names.EventsStream())
	if err != nil {
		return nil, err
	}
	out, err := b.ask("stats")
	if err != nil {
		return nil, err
	}
	w, err := b.watch(1)
	if err != nil {
		return nil, err
	}
	if err := b.publish(ctx, id, a.prompt()); err != nil {
		return nil, err
	}
	if _, err := w.wait(ctx); err != nil {
		return nil, err
	}
	stored2, err := b.stored(ctx, b.names.EventsStream())
	if err != nil {
		return nil, err
	}
	out2, err := b.ask("stats")
	if err != nil {
		return nil, err
	}
	content := float64(a.content())
	note := fmt.Sprintf("%d records; stored %.2f", w.records, float64(stored2-stored)/content)
	name := fmt.Sprintf("3 bytes per answer of %d tokens", a.tokens)
	if a.pace > 0 {
		name += fmt.Sprintf(" at %d/s", time.Second/a.pace)
	}
	worst := max(float64(stored2-stored), float64(out2.Out-out.Out))
	r := row{Figure: name, Value: worst, Unit: "B", Note: note + fmt.Sprintf(", sent %.2f times the content", float64(out2.Out-out.Out)/content)}.against(content)
	return []row{r.want("ratio <= 3", r.Ratio <= 3)}, nil
}

// delays is figure 4: from the model's chunk to a client that tails, against
// publish to consumer of the bare program.
func delays(ctx context.Context, b *bench) ([]row, error) {
	if _, err := b.work("", 256); err != nil {
		return nil, err
	}
	bare, err := b.startBare()
	if err != nil {
		return nil, err
	}
	defer bare.close()
	if err := b.drain(ctx); err != nil {
		return nil, err
	}
	var rows []row
	for _, n := range []int{1, 200} {
		a := answer{tokens: pick(b.options, 100, 500), turns: 1, pace: 20 * time.Millisecond, stamp: true}
		publish, whole, err := b.bareDelays(ctx, bare, n, a)
		if err != nil {
			return nil, err
		}
		got, stored, err := b.tailDelays(ctx, n, a)
		if err != nil {
			return nil, err
		}
		for _, q := range []int{50, 99} {
			r := row{
				Figure: fmt.Sprintf("4 delay of %d sessions, p%d", n, q), Value: quantile(got, q), Unit: "ms",
				Note: fmt.Sprintf("%.2f ms to the broker's disk; bare program from the model's chunk %.2f ms", quantile(stored, q), quantile(whole, q)),
			}.against(quantile(publish, q))
			rows = append(rows, r.want("ratio <= 1.5", r.Ratio <= 1.5))
		}
	}
	return rows, nil
}

// tailDelays are those of the deltas of n sessions, each with a client, all in
// this process; stored is the part of them until the broker had the record.
func (b *bench) tailDelays(ctx context.Context, n int, a answer) (all, stored []float64, err error) {
	ids := b.sessions(n)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards all, stored and errs
	var errs []error
	for _, id := range ids {
		wg.Go(func() {
			mine, parts, err := b.tailDelay(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			all, stored, errs = append(all, mine...), append(stored, parts...), append(errs, err)
		})
	}
	err = b.publish(ctx, ids, a.prompt())
	wg.Wait()
	if want := n * a.tokens; err == nil && len(all) != want {
		err = fmt.Errorf("%d of %d deltas came", len(all), want)
	}
	return all, stored, errors.Join(append(errs, err)...)
}

func (b *bench) tailDelay(ctx context.Context, id string) (all, stored []float64, err error) {
	for ev, err := range b.client.Tail(ctx, id, &client.TailOptions{Wait: true, Wire: true}) {
		if err != nil {
			return nil, nil, err
		}
		switch e := ev.Event.(type) {
		case *loop.MessageUpdate:
			if e.Update.Type == loop.UpdateTextDelta {
				now := since([]byte(e.Update.Delta))
				all, stored = append(all, now), append(stored, now-float64(time.Since(ev.Time))/1e6)
			}
		case *loop.AgentSettled:
			return all, stored, nil
		}
	}
	return all, stored, nil
}

// since is the age of a time stamp in nanoseconds, in ms.
func since(stamp []byte) float64 {
	now := time.Now().UnixNano()
	i := slices.IndexFunc(stamp, func(c byte) bool { return c < '0' || c > '9' })
	if i < 0 {
		i = len(stamp)
	}
	at, err := strconv.ParseInt(string(stamp[:i]), 10, 64)
	if err != nil {
		return 0
	}
	return float64(now-at) / 1e6
}

// bareDelays are those of what the bare program publishes, with one ordered
// consumer a session: from its publish, and from the model's chunk.
func (b *bench) bareDelays(ctx context.Context, bare *child, n int, a answer) (publish, whole []float64, err error) {
	var mu sync.Mutex // guards publish and whole
	for i := range n {
		cons, err := b.js.OrderedConsumer(ctx, bareStream, jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{"bare." + strconv.Itoa(i)}, DeliverPolicy: jetstream.DeliverNewPolicy,
		})
		if err != nil {
			return nil, nil, err
		}
		cc, err := cons.Consume(func(m jetstream.Msg) {
			data := m.Data()
			p := since(data)
			q := slices.Index(data, '"') // the delta is the last string
			for j, quotes := len(data)-4, 0; j > q && quotes == 0; j-- {
				if data[j] == '"' {
					q, quotes = j+1, 1
				}
			}
			w := since(data[q:])
			mu.Lock()
			defer mu.Unlock()
			publish, whole = append(publish, p), append(whole, w)
		})
		if err != nil {
			return nil, nil, err
		}
		defer cc.Stop()
	}
	if _, err := b.bareRun(bare, n, a); err != nil {
		return nil, nil, err
	}
	pause(ctx, 200*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(publish), slices.Clone(whole), nil
}

// slowBroker is figure 5: how fast the model gets rid of its answers when the
// broker answers late.
func slowBroker(ctx context.Context, b *bench) (rows []row, err error) {
	p, err := startLateBroker(b.broker.hello[len("nats://"):])
	if err != nil {
		return nil, err
	}
	defer p.close()
	defer func() { err = errors.Join(err, b.stopWorkers()) }()
	if _, err := b.work("nats://"+p.ln.Addr().String(), 8); err != nil {
		return nil, err
	}
	a := answer{tokens: pick(b.options, 4000, 20_000), turns: 1}
	var quick, late []float64
	for range pick(b.options, 4, 8) {
		p.delay.Store(0)
		q, err := b.modelTime(ctx, a)
		if err != nil {
			return nil, err
		}
		p.delay.Store(int64(50 * time.Millisecond))
		l, err := b.modelTime(ctx, a)
		if err != nil {
			return nil, err
		}
		quick, late = append(quick, q), append(late, l)
	}
	quick, late = quick[1:], late[1:]
	r := row{Figure: "5 model's reader, broker 50 ms late", Value: median(late), Unit: "tokens/s"}.against(median(quick))
	r.Ratio = medianRatio(late, quick)
	return []row{r.want("ratio >= 0.95", r.Ratio >= 0.95)}, nil
}

// modelTime says how many tokens a second the model wrote, of four answers at
// once.
func (b *bench) modelTime(ctx context.Context, a answer) (float64, error) {
	if _, err := b.model.ask("stats"); err != nil {
		return 0, err
	}
	if _, _, err := b.streamed(ctx, b.sessions(4), a); err != nil {
		return 0, err
	}
	st, err := b.model.ask("stats")
	if err != nil {
		return 0, err
	}
	return float64(st.Answers*a.tokens) / st.Busy.Seconds(), nil
}

func median(v []float64) float64 { return quantile(v, 50) }

// quantile sorts a copy.
func quantile(v []float64, percent int) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[(len(v)-1)*percent/100]
}

func medianRatio(v, floor []float64) float64 {
	r := make([]float64, len(v))
	for i := range v {
		r[i] = v[i] / floor[i]
	}
	return median(r)
}
