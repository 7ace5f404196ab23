package nats_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/subjects"
	"github.com/pi-worker/pi-worker/worker"
)

// Each role does its own work, and the broker refuses none of it.
func TestEachRoleDoesItsWork(t *testing.T) {
	url := start(t, "nats.conf")
	all := map[string]*who{}
	for _, role := range roles {
		all[role] = connect(t, url, role)
	}
	startWorker(t, all["worker"], "w1")
	t.Cleanup(func() {
		for _, role := range roles {
			if refused := all[role].take(t); len(refused) > 0 {
				t.Errorf("the broker refused %s:\n%s", role, strings.Join(refused, "\n"))
			}
		}
	})
	driver := newClient(t, all["driver"])
	ask(t, driver, "s1", "hello", "done by w1")
	ask(t, driver, "large", strings.Repeat("large ", 300_000), "done by w1") // travels as a blob

	r, err := newClient(t, all["publisher"]).Prompt(t.Context(), "s2", loop.NewUserText("from a service"), &client.InputOptions{ID: "order-1"})
	if err != nil {
		t.Fatalf("publishing: %v", err)
	}
	if _, err := all["publisher"].js.Publish(t.Context(), subjects.Names{}.Input("s1", subjects.KindAbort), nil); err != nil {
		t.Errorf("aborting: %v", err)
	}
	viewer := newClient(t, all["viewer"])
	if res, err := viewer.Wait(t.Context(), r); err != nil || res.Text != "done by w1" {
		t.Errorf("the viewer sees %+v, %v", res, err)
	}
	if tr, err := viewer.Transcript(t.Context(), "large"); err != nil || len(tr.Messages()) != 2 {
		t.Errorf("the viewer does not see the large session: %v", err)
	}
	if _, err := viewer.Sessions(t.Context()); err != nil {
		t.Errorf("the viewer has no list: %v", err)
	}
}

func TestWorkersReadTheQueueForTheirMetrics(t *testing.T) {
	n := subjects.Names{}
	boss := connect(t, start(t, "nats.conf"), "worker")
	if err := subjects.Ensure(t.Context(), boss.js, n, nil); err != nil {
		t.Fatal(err)
	}
	w, err := worker.New(t.Context(), worker.Config{
		NATS: boss.nc, Agent: func(context.Context, worker.AgentRequest) (*worker.Agent, error) { return nil, worker.ErrUnknownAgent },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := boss.js.Publish(t.Context(), n.Bell("s1"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := boss.js.CreateConsumer(t.Context(), n.EventsStream(), jetstream.ConsumerConfig{}); err != nil {
		t.Fatal(err)
	}
	d, err := w.Depth(t.Context())
	if err != nil || d.Waiting != 1 || d.Oldest <= 0 || d.Readers != 1 {
		t.Errorf("got %+v, %v", d, err)
	}
	if refused := boss.take(t); len(refused) > 0 {
		t.Errorf("the broker refused:\n%s", strings.Join(refused, "\n"))
	}
}

// attempt is something that roles must not do: a publish (requests are no
// more than that), or a subscription.
type attempt struct{ publish, subscribe string }

// What the broker must refuse each role. Names that are not allowed are
// refused whether or not anything is there.
func TestBrokerRefusesWhatARoleMustNotDo(t *testing.T) {
	n := subjects.Names{}
	api := "$JS.API."
	forge := []attempt{{publish: n.Events("s1")}, {publish: n.DLQ("s1")}, {publish: n.Owns("w1")}, {subscribe: n.Owns("w1")},
		{publish: "$KV." + n.SessionsBucket() + ".session.s1"}}
	take := []attempt{{publish: api + "CONSUMER.MSG.NEXT.AGENT_BELL.workers"}, {publish: "$JS.ACK.AGENT_BELL.workers.1.1.1.1.1"},
		{publish: api + "STREAM.MSG.DELETE.AGENT_INBOX"}, {publish: api + "CONSUMER.DELETE.AGENT_BELL.workers"}}
	change := []attempt{{publish: api + "STREAM.CREATE.AGENT_EVENTS"}, {publish: api + "STREAM.UPDATE.AGENT_EVENTS"}}
	destroy := []attempt{{publish: api + "STREAM.DELETE.AGENT_EVENTS"}, {publish: api + "STREAM.DELETE.AGENT_INBOX"},
		{publish: api + "STREAM.PURGE.AGENT_EVENTS"}, {publish: api + "STREAM.MSG.DELETE.AGENT_EVENTS"}}
	strange := []attempt{{publish: "orders.new"}, {subscribe: "orders.>"}, {subscribe: ">"}, {publish: api + "STREAM.CREATE.ORDERS"},
		{publish: api + "STREAM.INFO.ORDERS"}, {publish: api + "STREAM.LIST"}, {subscribe: "$JS.EVENT.>"}, {publish: "$SYS.REQ.SERVER.PING"}}
	inputs := []attempt{{publish: n.Bell("s1")}}
	for _, kind := range subjects.Kinds {
		inputs = append(inputs, attempt{publish: n.Input("s1", kind)})
	}
	decide := []attempt{{publish: n.Input("s1", "approve")}, {publish: n.Input("s1", subjects.KindQueue)}}
	read := []attempt{{publish: api + "CONSUMER.CREATE.AGENT_EVENTS.x.agent.s1.events"}, {publish: api + "DIRECT.GET.AGENT_EVENTS"},
		{publish: api + "STREAM.MSG.GET.AGENT_EVENTS"}, {subscribe: n.Events("s1")}, {subscribe: n.Input("s1", subjects.KindPrompt)},
		{publish: api + "DIRECT.GET.KV_AGENT_SESSIONS.session.s1"}, {publish: api + "DIRECT.GET.AGENT_INBOX"}, {publish: api + "DIRECT.GET.AGENT_DLQ"}}
	listen := func(others ...string) (out []attempt) {
		for _, o := range others {
			out = append(out, attempt{subscribe: "_INBOX_" + o + ".>"})
		}
		return append(out, attempt{subscribe: "_INBOX.>"})
	}
	call := []attempt{{publish: "tools.count"}, {publish: "$SRV.INFO"}, {publish: "_INBOX.x.cancel"}}
	offer := []attempt{{subscribe: "tools.count"}, {subscribe: "tools.>"}, {subscribe: "$SRV.INFO"}}
	letters := []attempt{{publish: api + "STREAM.MSG.DELETE.AGENT_DLQ"}, {publish: "$O.AGENT_BLOBS.C.x"}}

	tests := map[string][][]attempt{
		"publisher": {decide, forge, take, change, destroy, strange, read, letters, call, offer, listen("viewer", "driver")},
		"viewer":    {forge, take, change, destroy, strange, inputs, letters, call, offer, listen("publisher", "driver")},
		"driver":    {forge, take, change, destroy, strange, call, offer, listen("publisher", "viewer")},
		"tools": {forge, take, change, destroy, strange, inputs, read, letters, call, listen("publisher", "viewer", "driver"),
			{{publish: "_INBOX.an-answer-that-nobody-asked-for"}, {subscribe: "_INBOX.*"}, {publish: api + "INFO"}}},
		"worker": {destroy, strange, offer, {{publish: "$JS.API.CONSUMER.DELETE.AGENT_BELL.workers"}}, {{subscribe: n.Input("s1", subjects.KindPrompt)}}},
	}
	url := start(t, "nats.conf")
	boss := connect(t, url, "worker")
	if err := subjects.Ensure(t.Context(), boss.js, n, nil); err != nil {
		t.Fatal(err)
	}
	for _, role := range roles {
		t.Run(role, func(t *testing.T) {
			w := connect(t, url, role)
			for _, group := range tests[role] {
				for _, a := range group {
					w.mustNot(t, a)
				}
			}
		})
	}
	// And nothing of it had an effect.
	for _, name := range []string{n.InboxStream(), n.EventsStream(), n.BellStream(), n.DLQStream()} {
		s, err := boss.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if msgs := s.CachedInfo().State.Msgs; msgs != 0 {
			t.Errorf("%s has %d messages", name, msgs)
		}
	}
}

func (w *who) mustNot(t *testing.T, a attempt) {
	t.Helper()
	subject, word := a.publish, "Publish"
	var err error
	if a.subscribe != "" {
		subject, word = a.subscribe, "Subscription"
		_, err = w.nc.SubscribeSync(subject)
	} else {
		err = w.nc.PublishRequest(subject, w.nc.NewInbox(), []byte("{}"))
	}
	if err != nil {
		t.Fatal(err)
	}
	refused := w.next()
	if !strings.Contains(refused, `Permissions Violation for `+word+` to "`+subject+`"`) {
		t.Errorf("%s: the broker did not refuse %s %s: %q", w.name, word, subject, refused)
	}
}

// Whoever may create a consumer may name any subject to deliver to, also one
// that he may not publish to. Tried here: the broker takes a viewer's consumer,
// but what it would deliver reaches neither a listener nor a stream.
func TestAViewersConsumerMakesNoInput(t *testing.T) {
	n := subjects.Names{}
	url := start(t, "nats.conf")
	boss := connect(t, url, "worker")
	if err := subjects.Ensure(t.Context(), boss.js, n, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := boss.js.Publish(t.Context(), n.Events("s1"), []byte(`{"type":"agent_start"}`)); err != nil {
		t.Fatal(err)
	}
	aborts, err := boss.nc.SubscribeSync(n.AllInputs(subjects.KindAbort))
	if err != nil {
		t.Fatal(err)
	}
	viewer := connect(t, url, "viewer")
	old, err := viewer.nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	_, err = old.AddConsumer(n.EventsStream(), &nats.ConsumerConfig{
		Name: "x", DeliverSubject: n.Input("victim", subjects.KindAbort), AckPolicy: nats.AckNonePolicy, FilterSubject: n.Events("s1"),
	})
	if err != nil {
		t.Fatalf("creating the consumer: %v", err)
	}
	if m, err := aborts.NextMsg(time.Second); err == nil {
		t.Errorf("who listens got %s", m.Subject)
	}
	s, err := boss.js.Stream(t.Context(), n.InboxStream())
	if err != nil {
		t.Fatal(err)
	}
	if msgs := s.CachedInfo().State.Msgs; msgs != 0 {
		t.Errorf("the inbox has %d messages: say so in docs/security.md", msgs)
	}
}

// Two accounts have the same subjects, streams and sessions, and don't see
// each other.
func TestAccountsDoNotSeeEachOther(t *testing.T) {
	url := start(t, "accounts.conf")
	a, b := connect(t, url, "tenant-a"), connect(t, url, "tenant-b")
	startWorker(t, a, "worker-a")
	startWorker(t, b, "worker-b")
	ca, cb := newClient(t, a), newClient(t, b)

	overheard, err := b.nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	ask(t, ca, "only-a", "secret of tenant a", "done by worker-a")
	ask(t, ca, "same", "hello", "done by worker-a")
	ask(t, cb, "same", "hello", "done by worker-b")

	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	heard := 0
	for {
		m, err := overheard.NextMsg(0)
		if err != nil {
			break
		}
		heard++
		if strings.Contains(string(m.Data), "tenant a") || strings.Contains(m.Subject, "only-a") {
			t.Errorf("tenant b hears %s", m.Subject)
		}
	}
	if heard == 0 {
		t.Error("tenant b heard not even itself: the test shows nothing")
	}
	if _, err := cb.Transcript(t.Context(), "only-a"); err == nil {
		t.Error("tenant b reads a session of tenant a")
	}
	list, err := cb.Sessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Session != "same" || s.Worker != "" && s.Worker != "worker-b" {
			t.Errorf("tenant b sees %+v", s)
		}
	}
	if tr, err := cb.Transcript(t.Context(), "same"); err != nil || len(tr.Messages()) != 2 {
		t.Errorf("tenant b's own session has not its own two messages: %v", err)
	}
}
