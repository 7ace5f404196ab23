// Package check holds the whole truth of a run of pi-worker, inbox and logs,
// against what is promised. It reads bare messages and trusts no code that
// wrote them: only the codec of events is shared.
//
//	report := check.Run(&check.Case{Records: records, Inputs: inputs, Effects: effects})
//	for _, v := range report.Violations { … }
package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// Record is one stored message of the events stream.
type Record struct {
	Session   string
	StreamSeq uint64
	Time      time.Time // when the broker stored it
	Header    map[string][]string
	Data      []byte
}

// Input is what somebody asked for, and what the broker said to it.
type Input struct {
	Session string
	Kind    string // prompt, steer, followup, abort, queue
	ID      string // "" if a stranger gave none
	Text    string // of its message
	// Seqs are the inbox sequences under which the broker acknowledged it;
	// more than one if it was sent again. Empty: the outcome is unknown.
	Seqs []uint64
	// Malformed inputs must end as dead letters.
	Malformed bool
}

// Effect is one execution of a tool, as the world outside saw it.
type Effect struct {
	Session, Key, CallID string
	Worker               string
	Idempotent           bool
	Time                 time.Time
}

// Kill is the end of a worker that nobody had asked to be orderly.
type Kill struct {
	Worker string
	Time   time.Time
}

// Case is everything that is checked.
type Case struct {
	Records []Record // of all sessions, in stream order
	Inputs  []*Input
	Effects []Effect
	Kills   []Kill
	// Dead are the inbox sequences of the dead letters.
	Dead []uint64
}

// Report is what was found.
type Report struct {
	Violations []string // one sentence each
	Dropped    int      // violations beyond the first 200

	Sessions, Records, Events          int
	Claims, Runs, Resumed, Discarded   int
	Lost                               int // runs whose owner went without a word
	Delivered, Returned, DeadLetters   int
	Duplicates, Tools, Unknown, Orphan int // Orphan: effects of calls that the log does not finish
	Outcomes                           map[loop.Outcome]int
	// Takeovers are the times from a kill to the next claim of each session
	// with an open run, sorted.
	Takeovers []time.Duration
	// Transcripts are the sessions' messages at the end.
	Transcripts map[string]*loop.Transcript
}

const maxViolations = 200

func (r *Report) violate(format string, args ...any) {
	if len(r.Violations) >= maxViolations {
		r.Dropped++
		return
	}
	r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
}

// Run checks a case.
func Run(c *Case) *Report {
	r := &Report{Outcomes: map[loop.Outcome]int{}, Transcripts: map[string]*loop.Transcript{}}
	known := newLedger(c.Inputs)
	logs := map[string]*log{}
	for i := range c.Records {
		rec := &c.Records[i]
		l := logs[rec.Session]
		if l == nil {
			l = newLog(r, known, rec.Session, c.Kills)
			logs[rec.Session] = l
		}
		l.record(rec)
	}
	for id, l := range logs {
		l.end()
		r.Transcripts[id] = l.transcript
	}
	r.Sessions = len(logs)
	known.check(r, logs, c.Dead)
	checkEffects(r, logs, c.Effects)
	slices.Sort(r.Takeovers)
	return r
}

// Quantile gives the takeover that the share q of all do not exceed; 0 without
// any.
func (r *Report) Quantile(q float64) time.Duration {
	if len(r.Takeovers) == 0 {
		return 0
	}
	i := int(q*float64(len(r.Takeovers))+0.5) - 1
	return r.Takeovers[min(max(i, 0), len(r.Takeovers)-1)]
}
