package main

import (
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/loop/looptest"
)

// model is the scripted model. It looks at the conversation only, so that any
// worker goes on where another one was.
type model struct {
	script *looptest.Script
	pace   time.Duration
	faulty bool // it may fail, as models do
	// ending is told which session's last answer will end soon, and when.
	ending func(session string, at time.Time)

	mu       sync.Mutex // guards what is below
	requests int
	invalid  []string
}

func startModel(pace time.Duration, faulty bool, ending func(string, time.Time)) *model {
	m := &model{script: looptest.NewScript(), pace: pace, faulty: faulty, ending: ending}
	m.script.Otherwise(m.answer)
	return m
}

// answer checks the request as a strict server does, and answers.
func (m *model) answer(req *looptest.Request) looptest.Answer {
	err := error(nil)
	if req.API() == "openai-responses" {
		err = looptest.CheckResponsesRequest(req.Body)
	} else {
		err = looptest.CheckChatRequest(req.Body)
	}
	m.mu.Lock()
	m.requests++
	n := m.requests
	if err != nil {
		m.invalid = append(m.invalid, fmt.Sprintf("%v in %.2000s", err, req.Body))
	}
	m.mu.Unlock()
	m.script.Forget()
	if m.faulty && n%29 == 0 {
		return looptest.Reply{Status: 503, Text: "overloaded"}
	}
	r := m.reply(req)
	if m.faulty && n%31 == 0 {
		r.CutAfter = 3
	}
	return r
}

// reply depends on what the user said last and on how far the work is: none to
// three calls, in one turn or two, and an answer.
func (m *model) reply(req *looptest.Request) looptest.Reply {
	said := req.LastUser()
	h := fnv.New32a()
	h.Write([]byte(said))
	kind, done := h.Sum32()%8, req.ToolResults()
	r := looptest.Reply{ChunkDelay: m.pace, Usage: &looptest.Usage{Input: 100, Output: 20}}
	call := func(names ...string) looptest.Reply {
		r.Text = "Let me see what there is to do."
		for i, name := range names {
			r.Calls = append(r.Calls, looptest.Call{Name: name, Args: fmt.Sprintf(`{"n":%d}`, done+i)})
		}
		return r
	}
	switch {
	case done == 0 && kind == 0:
		return call("pay")
	case done == 0 && kind == 1:
		return call("pay", "look", "ship")
	case done == 0 && kind == 2, done == 2 && kind == 3:
		return call("ship")
	case done == 0 && kind == 3:
		return call("scan", "pay")
	case done == 0 && kind == 4:
		return call("scan")
	}
	said = said[:min(len(said), 60)] // of a long text only the beginning
	r.Text = "This is the answer to " + said + ", as long as it has to be to be cut in the middle."
	session, _, _ := strings.Cut(said, " ")
	m.ending(session, time.Now().Add(time.Duration(strings.Count(r.Text, " ")+1)*m.pace))
	return r
}

func (m *model) report() (requests int, invalid []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests, m.invalid
}
