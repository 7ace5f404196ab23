package check

// checkEffects holds the log's tool calls against what the world saw.
func checkEffects(r *Report, logs map[string]*log, effects []Effect) {
	byCall := map[string][]Effect{}
	byKey := map[string]int{}
	for _, e := range effects {
		id := e.Session + "/" + e.CallID
		byCall[id] = append(byCall[id], e)
		if !e.Idempotent {
			if byKey[e.Key]++; byKey[e.Key] == 2 {
				r.violate("tool call %s was executed for the second time, by %s", e.Key, e.Worker)
			}
		}
	}
	for _, l := range logs {
		for id, c := range l.calls {
			l.effects(r, id, c, byCall[l.session+"/"+id])
		}
	}
	for _, e := range effects {
		l := logs[e.Session]
		if l == nil || l.calls[e.CallID] == nil || l.calls[e.CallID].started == 0 {
			r.violate("tool call %s (%s) was executed by %s, and its start is not in the log", e.Key, e.CallID, e.Worker)
			continue
		}
		if c := l.calls[e.CallID]; c.ended == 0 || c.interrupted {
			r.Orphan++
		}
	}
}

func (l *log) effects(r *Report, id string, c *call, seen []Effect) {
	if c.ended == 0 || c.failed {
		return
	}
	if len(seen) == 0 {
		r.violate("session %s: call %s is finished and was never executed", l.session, id)
	}
	for _, e := range seen {
		// A worker that was frozen may wake up within an idempotent call; its
		// successor never begins one again that is finished.
		if e.Time.After(c.end) && l.ownerAt(e.Time) == e.Worker {
			r.violate("session %s: call %s was finished, and executed again by its owner %s", l.session, id, e.Worker)
		}
	}
}
