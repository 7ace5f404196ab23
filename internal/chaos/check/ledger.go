package check

import (
	"slices"
)

// ledger is the whole inbox: what was asked, by whatever name.
type ledger struct {
	inputs []*Input
	bySeq  map[uint64]*Input
	byID   map[string]*Input
}

func key(session, id string) string { return session + "/" + id }

func newLedger(inputs []*Input) *ledger {
	l := &ledger{inputs: inputs, bySeq: map[uint64]*Input{}, byID: map[string]*Input{}}
	for _, in := range inputs {
		for _, seq := range in.Seqs {
			l.bySeq[seq] = in
		}
		if in.ID != "" {
			l.byID[key(in.Session, in.ID)] = in
		}
	}
	return l
}

// check: each input that the broker acknowledged has one outcome, and nothing
// happened that nobody asked for.
func (l *ledger) check(r *Report, logs map[string]*log, dead []uint64) {
	uses := map[*Input][]*use{}
	for _, lg := range logs {
		for seq, u := range lg.uses {
			in := l.bySeq[seq]
			if in == nil {
				in = l.byID[key(lg.session, u.id)]
			}
			if in == nil {
				r.violate("session %s: %s:%d was consumed, and nobody sent it", lg.session, u.kind, seq)
				continue
			}
			uses[in] = append(uses[in], u)
			l.count(r, lg, u, dead)
		}
		for seq := range lg.settled {
			if lg.uses[seq] == nil {
				r.violate("session %s: agent_settled of %d, which was never consumed", lg.session, seq)
			}
		}
	}
	for _, in := range l.inputs {
		l.outcome(r, in, uses[in])
	}
}

// count checks one use by itself.
func (l *ledger) count(r *Report, lg *log, u *use, dead []uint64) {
	settled := lg.settled[u.seq]
	switch {
	case u.delivered:
		r.Delivered++
		if u.kind == "prompt" && settled != 1 {
			r.violate("session %s: prompt:%d was delivered and settled %d times", lg.session, u.seq, settled)
		}
		if lg.began[u.seq] && settled != 1 {
			r.violate("session %s: the run of %s:%d was settled %d times", lg.session, u.kind, u.seq, settled)
		}
	case u.reason == "duplicate":
		r.Duplicates++
		if settled != 0 {
			r.violate("session %s: %s:%d repeats an id, and was settled", lg.session, u.kind, u.seq)
		}
	case u.reason == "dead_letter":
		r.DeadLetters++
		if !slices.Contains(dead, u.seq) {
			r.violate("session %s: %s:%d is dead, and no letter says so", lg.session, u.kind, u.seq)
		}
	case hasMessage(u.kind):
		r.Returned++
		if u.kind == "prompt" && settled != 1 {
			r.violate("session %s: prompt:%d was returned and settled %d times", lg.session, u.seq, settled)
		}
	}
}

// outcome: exactly one, however often it was sent.
func (l *ledger) outcome(r *Report, in *Input, uses []*use) {
	n := 0
	for _, u := range uses {
		if u.reason == "duplicate" {
			continue
		}
		n++
		if u.kind != in.Kind {
			r.violate("session %s: %s %s was consumed as %s", in.Session, in.Kind, in.ID, u.kind)
		}
		if in.Malformed != (u.reason == "dead_letter") && (in.Malformed || u.reason != "dead_letter") {
			r.violate("session %s: %s:%d is malformed: %t, and its outcome is %q", in.Session, in.Kind, u.seq, in.Malformed, u.reason)
		}
	}
	switch {
	case n > 1:
		r.violate("session %s: %s %s %v has %d outcomes", in.Session, in.Kind, in.ID, in.Seqs, n)
	case n == 0 && len(in.Seqs) > 0:
		r.violate("session %s: %s %s %v has no outcome", in.Session, in.Kind, in.ID, in.Seqs)
	}
}
