package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/pi-worker/pi-worker/loop/looptest"
)

// What is said in the demo. A real model gets the same words.
const (
	demoPrompt = "Write five rivers with their lengths in km into rivers.txt, one a line, look at the file, " +
		"sort it by length with bash, and then tell me in about eighty words what you found."
	demoSteer    = "Say which river is the longest, too."
	demoFollowUp = "Now count the lines of the file with wc."
)

// demoAnswer is long enough to be killed in the middle of.
const demoAnswer = `I wrote five rivers into rivers.txt and sorted them by length. The Nile is the ` +
	`longest with 6650 km, as you asked. Then come the Danube with 2850 km, the Rhine with 1233 km, the Elbe ` +
	`with 1094 km and, last, the Po with 652 km. Together they are 12479 km long, which is a little less than ` +
	`the diameter of the Earth. If you have seen the beginning of this answer twice, that is because the worker ` +
	`that was giving it has been killed, and another one has asked again.`

// startModel starts the scripted model, unless there is a real one.
func (d *demo) startModel() error {
	m := &d.flags.model
	if err := m.resolve(); err != nil {
		return err
	}
	if !m.scripted {
		d.app.note("· model: %s at %s (a real one)", m.name, withoutSecrets(m.baseURL))
		return nil
	}
	pace := 40 * time.Millisecond
	if d.flags.quick {
		pace = 12 * time.Millisecond
	}
	d.script = looptest.NewScript()
	d.script.Otherwise(func(req *looptest.Request) looptest.Answer { return demoReply(req, pace) })
	d.app.note("· model: a scripted one (set OPENAI_API_KEY or --base-url for a real one)")
	return nil
}

// demoReply is the scripted model. It looks at the conversation only, so it
// answers the same to whoever asks: the second worker goes on where the first
// one was.
func demoReply(req *looptest.Request, pace time.Duration) looptest.Reply {
	reply := looptest.Reply{ChunkDelay: pace, Usage: &looptest.Usage{Input: int64(len(req.Body) / 4), Output: 60}}
	results := 0
	for _, turn := range req.Turns() {
		if turn.Role == "tool" {
			results++
		}
	}
	steered := req.Contains("user", demoSteer)
	switch {
	case req.LastUser() == demoFollowUp && req.ToolResults() == 0:
		reply.Calls = []looptest.Call{bash("wc -l rivers.txt")}
	case req.LastUser() == demoFollowUp:
		reply.Text = "The file has five lines."
	case results == 0:
		reply.Text = "First I write the file, and see what is there."
		reply.Calls = []looptest.Call{
			{Name: "write", Args: `{"path":"rivers.txt","content":"Rhine 1233\nNile 6650\nPo 652\nDanube 2850\nElbe 1094\n"}`},
			{Name: "ls", Args: `{}`},
		}
	case results == 2:
		reply.Text = "Now I read it."
		reply.Calls = []looptest.Call{{Name: "read", Args: `{"path":"rivers.txt"}`}}
	case results == 3 || !steered && results < 20:
		reply.Calls = []looptest.Call{bash("sort -k2 -n -r rivers.txt")}
	default:
		reply.Text = demoAnswer
	}
	return reply
}

func bash(command string) looptest.Call {
	return looptest.Call{Name: "bash", Args: fmt.Sprintf(`{"command":%q}`, strings.TrimSpace(command))}
}
