package natstool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/pi-worker/pi-worker/loop"
)

// Options of a [Directory]; zero fields have defaults.
type Options struct {
	// Refresh is how often services are looked for; 0 means 5 s.
	Refresh time.Duration
	// Settle is how long answers are waited for after the last one; 0 means
	// 150 ms.
	Settle time.Duration
	// Timeout bounds calls of tools that name no bound; 0 means 5 min.
	Timeout time.Duration
	// Changed is called after each look that found tools come or gone, from
	// one goroutine; nil is not.
	Changed func(arrived, departed []string)
	Logger  *slog.Logger // nil discards
}

// missesAllowed is in how many looks a service may be silent before its tools
// are gone: one answer may be late.
const missesAllowed = 1

// longestLook bounds the waiting for answers, however many services there are.
const longestLook = 2 * time.Second

// Directory knows the tools that services offer now. It is safe for use by
// many goroutines.
type Directory struct {
	nc   *nats.Conn
	opts Options
	log  *slog.Logger
	stop context.CancelFunc
	wg   sync.WaitGroup
	wake chan struct{} // look now

	looking sync.Mutex // held during a look

	mu       sync.Mutex // guards what is below
	offers   map[string]*entry
	reported map[string]string // complaints that were logged
}

// entry is one tool of the directory.
type entry struct {
	offer  *offer
	misses int
	// rival is another service that offers the same name, "" none: then the
	// tool is nobody's.
	rival string
}

// Open looks once, so that the directory is filled, and then keeps it true
// until Close.
func Open(ctx context.Context, nc *nats.Conn, opts *Options) (*Directory, error) {
	if opts == nil {
		opts = &Options{}
	}
	o := *opts
	o.Refresh = cmp.Or(o.Refresh, 5*time.Second)
	o.Settle = cmp.Or(o.Settle, 150*time.Millisecond)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Minute)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Directory{
		nc: nc, opts: o, log: o.Logger, wake: make(chan struct{}, 1),
		offers: map[string]*entry{}, reported: map[string]string{},
	}
	if err := d.Look(ctx); err != nil {
		return nil, err
	}
	ctx, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	d.wg.Go(func() { d.run(ctx) })
	return d, nil
}

// Close ends the looking. Tools that were given out can still be called.
func (d *Directory) Close() error {
	d.stop()
	d.wg.Wait()
	return nil
}

func (d *Directory) run(ctx context.Context) {
	t := time.NewTicker(d.opts.Refresh)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-d.wake:
		}
		if err := d.Look(ctx); err != nil && ctx.Err() == nil {
			d.log.Warn("looking for remote tools", "error", err)
		}
	}
}

// lookSoon is called when a call shows that the directory is out of date.
func (d *Directory) lookSoon() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Look asks all services what they offer, now.
func (d *Directory) Look(ctx context.Context) error {
	d.looking.Lock()
	defer d.looking.Unlock()
	infos, err := d.ask(ctx)
	if err != nil {
		return fmt.Errorf("natstool: asking for services: %w", err)
	}
	found, rivals, complaints := sortOut(infos)
	arrived, departed := d.update(found, rivals)
	d.complain(complaints)
	if len(arrived)+len(departed) == 0 {
		return nil
	}
	d.log.Info("remote tools changed", "arrived", arrived, "departed", departed)
	if d.opts.Changed != nil {
		d.opts.Changed(arrived, departed)
	}
	return nil
}

// ask collects the answers of all services until they stop coming.
func (d *Directory) ask(ctx context.Context) ([]micro.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	inbox := d.nc.NewInbox()
	sub, err := d.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	subject, err := micro.ControlSubject(micro.InfoVerb, "", "")
	if err != nil {
		return nil, err
	}
	if err := d.nc.PublishRequest(subject, inbox, nil); err != nil {
		return nil, err
	}
	var infos []micro.Info
	for {
		msg, err := next(ctx, sub, d.opts.Settle)
		switch {
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded):
			return infos, nil
		case err != nil:
			return nil, err
		}
		var info micro.Info
		if json.Unmarshal(msg.Data, &info) == nil && info.Name != "" {
			infos = append(infos, info)
		}
	}
}

// next waits for one message for at most d.
func next(ctx context.Context, sub *nats.Subscription, d time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	msg, err := sub.NextMsgWithContext(ctx)
	if err == nil && len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
		return nil, nats.ErrNoResponders
	}
	return msg, err
}

// sortOut makes one offer of each tool: of a service's instances the highest
// version counts, and of two services that offer one name neither.
func sortOut(infos []micro.Info) (found map[string]*offer, rivals map[string]string, complaints map[string]string) {
	found, rivals, complaints = map[string]*offer{}, map[string]string{}, map[string]string{}
	// The answers come in any order, and what is made of them must not.
	slices.SortFunc(infos, func(a, b micro.Info) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), compareVersions(b.Version, a.Version), strings.Compare(a.ID, b.ID))
	})
	for _, info := range infos {
		for _, e := range info.Endpoints {
			o, err := parseOffer(info.Name, info.Version, e.Subject, e.Metadata)
			if err != nil {
				complaints[info.Name+"/"+e.Name] = err.Error()
			}
			if o == nil || err != nil {
				continue
			}
			name := o.Spec.Name
			first := found[name]
			if first == nil {
				found[name] = o
			} else if first.Service != o.Service {
				rivals[name] = o.Service
				complaints[name] = fmt.Sprintf("services %s and %s both offer it; neither is used", first.Service, o.Service)
			}
		}
	}
	return found, rivals, complaints
}

// compareVersions compares dotted numbers; what is no number compares as text.
func compareVersions(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, errX := strconv.Atoi(as[i])
		y, errY := strconv.Atoi(bs[i])
		c := cmp.Compare(x, y)
		if errX != nil || errY != nil {
			c = strings.Compare(as[i], bs[i])
		}
		if c != 0 {
			return c
		}
	}
	return len(as) - len(bs)
}

func (d *Directory) update(found map[string]*offer, rivals map[string]string) (arrived, departed []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, o := range found {
		if e := d.offers[name]; e == nil || e.rival != "" && rivals[name] == "" {
			arrived = append(arrived, name)
		}
		d.offers[name] = &entry{offer: o, rival: rivals[name]}
	}
	for name, e := range d.offers {
		if found[name] != nil {
			continue
		}
		if e.misses++; e.misses > missesAllowed {
			delete(d.offers, name)
			departed = append(departed, name)
		}
	}
	slices.Sort(arrived)
	slices.Sort(departed)
	return arrived, departed
}

// complain logs each trouble once.
func (d *Directory) complain(complaints map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for what, text := range complaints {
		if d.reported[what] != text {
			d.log.Warn("remote tool refused", "tool", what, "reason", text)
		}
	}
	d.reported = complaints
}

// Tools gives the tools whose names match one of the patterns, in the order of
// their names; * and ? in a pattern stand for any letters and any one. missing
// are the patterns that no tool matches now.
func (d *Directory) Tools(patterns ...string) (list []loop.Tool, missing []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	hit := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(d.offers)) {
		e := d.offers[name]
		wanted := false
		for _, p := range patterns {
			if ok, err := path.Match(p, name); ok && err == nil && e.rival == "" {
				wanted, hit[p] = true, true
			}
		}
		if wanted {
			list = append(list, &remote{d: d, offer: e.offer})
		}
	}
	for _, p := range patterns {
		if !hit[p] {
			missing = append(missing, p)
		}
	}
	return list, missing
}

// Origin says which service offers the tool, "" if it is none of a directory's.
func Origin(t loop.Tool) string {
	if r, ok := t.(*remote); ok {
		return "NATS service " + r.offer.Service + " " + r.offer.Version + " on " + r.offer.Subject
	}
	return ""
}
