package worker

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/pi-worker/pi-worker/internal/session"
	"github.com/pi-worker/pi-worker/loop"
)

// reasonTreeLimit is why an input is returned that would begin in a tree that
// has used up its limit.
const reasonTreeLimit = "tree_limit"

// budget adds up what a tree of runs uses, and holds it against the limits of
// its run and of those above. Each member says what it has used, and each looks
// at the sum: so nobody has to be alive for the others to stop. nil is a run
// that no such limit binds.
type budget struct {
	o     *owner
	meter *meter
	run   session.Parent
	chain []session.Parent // the runs above, the parent first, the root last

	mu    sync.Mutex // guards what is below
	own   session.TreeMember
	said  *session.TreeMember // as the others know it
	known map[session.Parent]*session.TreeMember
	deaf  bool // the last look failed
}

// joinTree makes the run a member of its tree, if a limit binds it. over says
// that the tree has no more to give.
func (r *run) joinTree(ctx context.Context) (over *kinError) {
	l := r.agent.Limits
	if r.family == nil && l.TreeTokens == 0 && l.TreeCost == 0 {
		return nil
	}
	b := &budget{
		o: r.o, meter: r.meter, run: session.Parent{Session: r.o.session, Run: r.prompt.Seq},
		own: session.TreeMember{MaxTokens: l.TreeTokens, MaxCost: l.TreeCost},
	}
	if r.family != nil {
		for _, k := range r.family.above {
			b.chain = append(b.chain, k.Parent)
		}
	}
	b.own.Above = b.chain
	b.read(ctx)
	if !b.binds() && !b.deaf {
		return nil
	}
	r.budget = b
	return b.check(ctx)
}

func (b *budget) root() session.Parent {
	if len(b.chain) == 0 {
		return b.run
	}
	return b.chain[len(b.chain)-1]
}

// binds says whether the run or one above it has a limit for its tree.
func (b *budget) binds() bool {
	return b.own.MaxTokens > 0 || b.own.MaxCost > 0 || slices.ContainsFunc(b.chain, func(p session.Parent) bool {
		m := b.known[p]
		return m != nil && (m.MaxTokens > 0 || m.MaxCost > 0)
	})
}

// check tells the tree what the run has used and looks at the sum. Trouble with
// the broker ends nothing: what was known last counts then, and what the run
// itself has used since.
func (b *budget) check(ctx context.Context) *kinError {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read(ctx)
	b.say(ctx)
	for _, at := range append(slices.Clone(b.chain), b.run) {
		if end := b.over(at); end != nil {
			return end
		}
	}
	return nil
}

// report tells the tree what the run has used in the end.
func (b *budget) report(ctx context.Context) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.say(ctx)
}

// say writes the run's own part if the others don't know it.
func (b *budget) say(ctx context.Context) {
	used := b.meter.used()
	b.own.Tokens, b.own.Cost = used.TotalTokens, used.Cost.Total
	if b.said == nil || !reflect.DeepEqual(*b.said, b.own) {
		err := b.o.w.store.PutTreeMember(ctx, b.root(), b.run, &b.own)
		b.heard(ctx, err)
		if err == nil {
			said := b.own
			b.said = &said
		}
	}
	if b.known == nil {
		b.known = map[session.Parent]*session.TreeMember{}
	}
	b.known[b.run] = &b.own
}

func (b *budget) read(ctx context.Context) {
	all, err := b.o.w.store.Tree(ctx, b.root())
	b.heard(ctx, err)
	if err != nil {
		return
	}
	b.said = all[b.run] // nil: somebody has deleted it
	// A limit that was known stays, whoever deletes it.
	for _, p := range b.chain {
		if was := b.known[p]; was != nil && all[p] == nil {
			all[p] = was
		}
	}
	b.known = all
}

// heard tells of trouble once.
func (b *budget) heard(ctx context.Context, err error) {
	if err != nil && !b.deaf && ctx.Err() == nil {
		b.o.log.Warn("looking at what the tree has used", "run", b.run.String(), "error", err)
	}
	b.deaf = err != nil
}

// over holds what a run and all below it have used against its limits.
func (b *budget) over(at session.Parent) *kinError {
	m := b.known[at]
	if m == nil || m.MaxTokens == 0 && m.MaxCost == 0 {
		return nil
	}
	var tokens int64
	var cost float64
	for p, other := range b.known {
		if p == at || slices.Contains(other.Above, at) {
			tokens += other.Tokens
			cost += other.Cost
		}
	}
	switch {
	case m.MaxTokens > 0 && tokens >= m.MaxTokens:
		return treeLimit(fmt.Sprintf("%d tokens in the tree of run %s", m.MaxTokens, at))
	case m.MaxCost > 0 && cost >= m.MaxCost:
		return treeLimit(fmt.Sprintf("%.4g dollars in the tree of run %s", m.MaxCost, at))
	}
	return nil
}

func treeLimit(what string) *kinError {
	return &kinError{reason: reasonTreeLimit, outcome: loop.OutcomeLimit, text: what}
}
