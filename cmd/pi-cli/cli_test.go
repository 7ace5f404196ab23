package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

// png is a picture's first bytes: what tells its type.
var png = []byte("\x89PNG\r\n\x1a\n and so on")

func TestExitCodesByOutcome(t *testing.T) {
	f := newFleet(t).startWorker(t)
	f.script.Otherwise(func(req *looptest.Request) looptest.Answer {
		switch req.LastUser() {
		case "fail":
			return looptest.Reply{Status: 400, Text: "no such thing"}
		case "loop":
			return looptest.Calls(looptest.Call{Name: "echo"})
		}
		return looptest.Text("the Po")
	})
	f.cli(t, "prompt", "name a river").want(t, exitOK, "the Po\n", "✓ completed")
	f.cli(t, "prompt", "fail").want(t, exitFailed, "", "no such thing")
	f.cli(t, "prompt", "--agent", "limited", "loop").want(t, exitLimit, "", "✗ limit")
	f.cli(t, "prompt", "--agent", "nobody", "hi").want(t, exitDeadLetter, "", "✗ dead_letter")
}

func TestExitCodesOfBadInput(t *testing.T) {
	f := newFleet(t)
	f.prompt(t, "known", "hi")
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, bytes.Repeat([]byte("x"), 33<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "text.png")
	if err := os.WriteFile(text, []byte("this is no picture"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		code int
		err  string
		args []string
	}{
		{"session with a dot", exitUsage, "session id", []string{"prompt", "--session", "a.b", "hi"}},
		{"session with a wildcard", exitUsage, "session id", []string{"prompt", "--session", "*", "hi"}},
		{"session of 65 characters", exitUsage, "session id", []string{"prompt", "--session", strings.Repeat("x", 65), "hi"}},
		{"session that is empty", exitUsage, "session id", []string{"prompt", "--session", "", "hi"}},
		{"unknown thinking level", exitUsage, "--thinking", []string{"prompt", "--thinking", "deeply", "hi"}},
		{"empty prompt", exitUsage, "empty", []string{"prompt", ""}},
		{"empty standard input", exitUsage, "empty", []string{"prompt"}},
		{"no such file", exitUsage, "no such file", []string{"prompt", "@/no/such/file"}},
		{"text that is none", exitRefused, "not UTF-8", []string{"prompt", "a\xff\xfeb"}},
		{"no such image", exitUsage, "no such file", []string{"prompt", "--image", "/no/such.png", "hi"}},
		{"an image that is none", exitUsage, "text/plain", []string{"prompt", "--image", text, "hi"}},
		{"unknown flag", exitUsage, "--wat", []string{"prompt", "--wat", "hi"}},
		{"unknown command", exitUsage, "prompt", []string{"promt", "hi"}},
		{"tail without a session", exitUsage, "usage", []string{"tail"}},
		{"tail with a dot", exitUsage, "session id", []string{"tail", "a.b"}},
		{"tail from nowhere", exitUsage, "--from", []string{"tail", "--from", "yesterday", "known"}},
		{"two forms", exitUsage, "--json", []string{"tail", "--json", "--wire", "known"}},
		{"abort with another queue", exitUsage, "--queue", []string{"abort", "--queue", "burn", "known"}},
		{"bad prefix", exitUsage, "prefix", []string{"--prefix", "a.*", "ps"}},
		{"half of TLS", exitUsage, "nats.tls.key", []string{"--tls-cert", "x", "ps"}},
		{"over the limit", exitRefused, "33554432", []string{"prompt", "@" + big}},
		{"tail of an unknown session", exitUnknown, "misspelt", []string{"tail", "misspelt"}},
		{"show of an unknown session", exitUnknown, "misspelt", []string{"show", "misspelt"}},
		{"steer of an unknown session", exitUnknown, "misspelt", []string{"steer", "misspelt", "hi"}},
		{"followup of an unknown session", exitUnknown, "misspelt", []string{"followup", "misspelt", "hi"}},
		{"abort of an unknown session", exitUnknown, "misspelt", []string{"abort", "misspelt"}},
		{"other prefix", exitConnection, "worker", []string{"--prefix", "other", "prompt", "hi"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := f.cli(t, tt.args...)
			r.want(t, tt.code, "", tt.err)
			if n := strings.Count(r.err, "\n"); n != 1 {
				t.Errorf("%d lines on stderr, want one clear sentence: %q", n, r.err)
			}
			if r.out != "" {
				t.Errorf("stdout is %q, want nothing", r.out)
			}
		})
	}
}

func TestDetachPrintsSessionAndSequence(t *testing.T) {
	f := newFleet(t)
	r := f.cli(t, "prompt", "--detach", "--session", "web-7", "hi")
	r.want(t, exitOK, "web-7 1\n", "")
	if r.err != "" {
		t.Errorf("stderr is %q, want nothing", r.err)
	}
	r = f.cli(t, "prompt", "-d", "hi")
	fields := strings.Fields(r.out)
	if len(fields) != 2 || fields[1] != "2" {
		t.Fatalf("stdout is %q, want a session and 2", r.out)
	}
	if _, err := client.ParseSession(fields[0]); err != nil {
		t.Error(err)
	}
	r = f.cli(t, "prompt", "-d", "--json", "--id", "order-17", "--session", "web-7", "hi")
	var receipt client.Receipt
	if err := json.Unmarshal([]byte(r.out), &receipt); err != nil || receipt.Seq != 3 || receipt.ID != "order-17" {
		t.Errorf("%s: %v", r.out, err)
	}
}

// lastInput is the message of the last input of a session's kind.
func (f *fleet) lastInput(t *testing.T, subject string) *loop.UserMessage {
	t.Helper()
	stream, err := f.JS.Stream(t.Context(), "AGENT_INBOX")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetLastMsgForSubject(t.Context(), subject)
	if err != nil {
		t.Fatal(err)
	}
	var body struct{ Message json.RawMessage }
	if err := json.Unmarshal(msg.Data, &body); err != nil {
		t.Fatal(err)
	}
	m, err := loop.ParseMessage(body.Message)
	if err != nil {
		t.Fatal(err)
	}
	return m.(*loop.UserMessage)
}

func TestInputFromStdinAndFile(t *testing.T) {
	f := newFleet(t)
	dir := t.TempDir()
	task, picture := filepath.Join(dir, "task.md"), filepath.Join(dir, "shot.dat")
	for name, data := range map[string]string{task: "do\nthis\n", picture: string(png)} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name, stdin, want string
		args              []string
	}{
		{"arguments", "", "name a river", []string{"name", "a", "river"}},
		{"standard input", "from\nstdin\n", "from\nstdin", nil},
		{"dash", "a diff", "review this: a diff", []string{"review", "this:", "-"}},
		{"file", "", "do\nthis", []string{"@" + task}},
		{"file among words", "", "see do\nthis now", []string{"see", "@" + task, "now"}},
		{"at sign", "", "tell @alice", []string{"tell", "@@alice"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"prompt", "-d", "--session", "s"}, tt.args...)
			f.invoke(t, invocation{stdin: tt.stdin, args: args}).want(t, exitOK, "s ", "")
			text, _ := contentOf(f.lastInput(t, "agent.s.prompt").Content)
			if text != tt.want {
				t.Errorf("the prompt is %q, want %q", text, tt.want)
			}
		})
	}
	f.cli(t, "prompt", "-d", "--session", "s", "--image", picture, "look").want(t, exitOK, "s ", "")
	content := f.lastInput(t, "agent.s.prompt").Content
	image, ok := content[len(content)-1].(*loop.Image)
	if !ok || image.MIMEType != "image/png" || image.Data != base64.StdEncoding.EncodeToString(png) {
		t.Errorf("the picture is %+v", content)
	}
	f.invoke(t, invocation{stdin: "wait", args: []string{"steer", "s"}}).want(t, exitOK, "", "steer")
	if text, _ := contentOf(f.lastInput(t, "agent.s.steer").Content); text != "wait" {
		t.Errorf("the steer is %q", text)
	}
}

func TestPromptSteerFollowUpAbortShowPs(t *testing.T) {
	release := make(chan struct{})
	f := newFleet(t,
		looptest.Reply{Text: "one", Calls: []looptest.Call{{Name: "echo", Args: `{"text":"hello"}`}}, Hold: release},
		looptest.Text("two"), looptest.Text("three"),
		looptest.Reply{Text: "endless words", Hold: make(chan struct{})},
	).startWorker(t)

	var prompted result
	var wg sync.WaitGroup
	wg.Go(func() { prompted = f.cli(t, "prompt", "--session", "s", "go") })
	f.until(t, "s", isTextDelta)
	f.cli(t, "steer", "s", "not", "that").want(t, exitOK, "", "steer 2 accepted")
	f.cli(t, "followup", "--json", "s", "and more").want(t, exitOK, `"kind":"followup"`, "")
	close(release)
	wg.Wait()
	prompted.want(t, exitOK, "one\ntwo\nthree\n", "» not that")
	prompted.want(t, exitOK, "", "» and more")
	prompted.want(t, exitOK, "", "✓ echo hello → ")

	f.cli(t, "tail", "s").want(t, exitOK, "one\ntwo\nthree\n", "» go")
	f.cli(t, "show", "s").want(t, exitOK, "» go\none\n✓ echo hello → {\"text\":\"hello\"}\n» not that\ntwo\n» and more\nthree\n", "")
	shown := f.cli(t, "show", "--json", "s")
	if lines := strings.Split(strings.TrimSpace(shown.out), "\n"); len(lines) != 7 {
		t.Errorf("show --json has %d messages, want 7: %s", len(lines), shown.out)
	}

	wg.Go(func() { prompted = f.cli(t, "prompt", "--session", "t", "go on") })
	f.until(t, "t", isTextDelta)
	f.cli(t, "tail", "--follow=false", "t").want(t, exitUnsettled, "endless ", "")
	f.cli(t, "abort", "t").want(t, exitOK, "", "abort")
	wg.Wait()
	prompted.want(t, exitAborted, "endless ", "✗ aborted")
	f.cli(t, "tail", "t").want(t, exitAborted, "endless ", "✗ aborted")
}

func TestPsShowsSessions(t *testing.T) {
	f := newFleet(t, looptest.Text("one")).startWorker(t)
	f.cli(t, "prompt", "--session", "web-7", "hi").want(t, exitOK, "one", "")
	// The worker publishes summaries a little later than events.
	f.untilListed(t, "web-7")
	r := f.cli(t, "ps")
	r.want(t, exitOK, "SESSION", "")
	if fields := strings.Fields(strings.Split(r.out, "\n")[1]); fields[0] != "web-7" || !slices.Contains(fields, "idle") {
		t.Errorf("ps says %q", r.out)
	}
	var info client.SessionInfo
	if r = f.cli(t, "ps", "--json"); json.Unmarshal([]byte(r.out), &info) != nil || info.Session != "web-7" || info.Outcome != loop.OutcomeCompleted {
		t.Errorf("ps --json says %q", r.out)
	}
}

// untilListed waits for the session's summary to say that it is idle.
func (f *fleet) untilListed(t *testing.T, session string) {
	t.Helper()
	kv, err := f.JS.KeyValue(t.Context(), "AGENT_SESSIONS")
	if err != nil {
		t.Fatal(err)
	}
	watch, err := kv.WatchAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for entry := range watch.Updates() {
		if entry != nil && bytes.Contains(entry.Value(), []byte(session)) && bytes.Contains(entry.Value(), []byte(`"completed"`)) {
			return
		}
	}
}

func TestTailReplayEqualsLive(t *testing.T) {
	f := newFleet(t,
		looptest.Reply{Text: "looking", Calls: []looptest.Call{{Name: "echo"}, {Name: "echo"}}},
		looptest.Text("the Rhine and the Po"),
	).startWorker(t)
	live := f.cli(t, "prompt", "--session", "s", "--json", "go")
	live.want(t, exitOK, `"type":"agent_settled"`, "")
	replay := f.cli(t, "tail", "--json", "--from", "start", "s")
	replay.want(t, exitOK, `"type":"session_claimed"`, "")
	// The tail begins with the claim, which is no part of the prompt.
	if !strings.HasSuffix(replay.out, live.out) {
		t.Errorf("replay differs from live\nlive:\n%s\nreplay:\n%s", live.out, replay.out)
	}
	again := f.cli(t, "tail", "--json", "--from", "start", "--follow=false", "s")
	if again.out != replay.out || again.code != exitOK {
		t.Errorf("--follow=false gives code %d and\n%s\nwant\n%s", again.code, again.out, replay.out)
	}
	wire := f.cli(t, "tail", "--wire", "s")
	if len(wire.out) >= len(replay.out) || !strings.Contains(wire.out, `"type":"agent_end"`) {
		t.Errorf("--wire is no shorter than --json:\n%s", wire.out)
	}
}

func TestTimeoutLeavesThePromptRunning(t *testing.T) {
	f := newFleet(t) // and no worker
	r := f.cli(t, "prompt", "--session", "s", "--timeout", "100ms", "hi")
	r.want(t, exitTimeout, "", "the prompt runs on")
	r.want(t, exitTimeout, "", "pi-cli tail s")
}

func TestAbortOnInterrupt(t *testing.T) {
	f := newFleet(t, looptest.Reply{Text: "endless words", Hold: make(chan struct{})}).startWorker(t)
	signals := make(chan os.Signal, 1)
	var r result
	var wg sync.WaitGroup
	wg.Go(func() {
		r = f.invoke(t, invocation{interrupts: signals, args: []string{"prompt", "--session", "s", "--abort-on-interrupt", "hi"}})
	})
	f.until(t, "s", isTextDelta)
	signals <- os.Interrupt
	wg.Wait()
	r.want(t, exitAborted, "endless ", "✗ aborted")
}

func TestInterruptEndsTail(t *testing.T) {
	f := newFleet(t)
	f.prompt(t, "s", "hi")
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	r := f.invoke(t, invocation{interrupts: signals, args: []string{"tail", "s"}})
	r.want(t, exitInterrupted, "", "")
}

func TestRetriedAnswerIsNotDoubled(t *testing.T) {
	f := newFleet(t, looptest.Reply{Text: "the Rhine and the Po", CutAfter: 2}, looptest.Text("the Rhine and the Po")).startWorker(t)
	r := f.cli(t, "prompt", "hi")
	r.want(t, exitOK, "\nthe Rhine and the Po\n", "discarded")
}

func TestNoColor(t *testing.T) {
	for _, tt := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, true},
		{map[string]string{"NO_COLOR": "1"}, false},
		{map[string]string{"NO_COLOR": "no"}, false},
		{map[string]string{"TERM": "dumb"}, false},
		{map[string]string{"NO_COLOR": "", "TERM": "xterm"}, true},
	} {
		a := &app{streams: streams{env: func(name string) string { return tt.env[name] }}}
		if got := a.mayColor(); got != tt.want {
			t.Errorf("colour with %v is %v", tt.env, got)
		}
	}
	f := newFleet(t, looptest.Text("one")).startWorker(t)
	r := f.cli(t, "prompt", "hi")
	r.want(t, exitOK, "one", "completed")
	if strings.Contains(r.out+r.err, "\x1b") {
		t.Errorf("escape sequences where there is no terminal: %q %q", r.out, r.err)
	}
}

func TestQuietSaysNothingButTheAnswer(t *testing.T) {
	f := newFleet(t, looptest.Text("one")).startWorker(t)
	r := f.cli(t, "--quiet", "prompt", "hi")
	if r.code != exitOK || r.out != "one\n" || r.err != "" {
		t.Errorf("%+v", r)
	}
}

func TestHelpHasExitCodes(t *testing.T) {
	r := invoke(t, invocation{args: []string{"--help"}})
	table := invoke(t, invocation{args: []string{"exit-codes"}})
	markdown := invoke(t, invocation{args: []string{"exit-codes", "--markdown"}})
	for _, c := range exitCodes {
		r.want(t, exitOK, c.Meaning, "")
		table.want(t, exitOK, c.Meaning, "")
		markdown.want(t, exitOK, "| "+c.Name+" | "+c.Meaning+" |", "")
	}
}

func TestVersionIsFromBuildInfo(t *testing.T) {
	invoke(t, invocation{args: []string{"--version"}}).want(t, exitOK, "pi-cli ", "")
	invoke(t, invocation{args: []string{"completion", "bash"}}).want(t, exitOK, "pi-cli", "")
}

func TestTextStreamsAsItArrives(t *testing.T) {
	release := make(chan struct{})
	f := newFleet(t, looptest.Reply{Text: "first second", Hold: release}).startWorker(t)
	reader, writer := io.Pipe()
	var wg sync.WaitGroup
	var code int
	wg.Go(func() {
		code = run(t.Context(), []string{"--server", f.Server.ClientURL(), "prompt", "hi"}, streams{
			in: strings.NewReader(""), out: writer, err: io.Discard, env: func(string) string { return "" },
		})
		writer.Close()
	})
	// The answer has no newline and no end yet.
	start := make([]byte, len("first second"))
	if _, err := io.ReadFull(reader, start); err != nil || string(start) != "first second" {
		t.Errorf("stdout begins with %q, %v", start, err)
	}
	close(release)
	rest, err := io.ReadAll(reader)
	wg.Wait()
	if err != nil || string(rest) != "\n" || code != exitOK {
		t.Errorf("stdout ends with %q, code %d, %v", rest, code, err)
	}
}

// fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestAnswersThatCannotBeWrittenAreAnError(t *testing.T) {
	f := newFleet(t, looptest.Reply{Text: "one"}).startWorker(t)
	for _, args := range [][]string{
		{"prompt", "--session", "s", "hi"},
		{"tail", "s", "--from", "start", "--follow=false"},
		{"show", "s"},
	} {
		var errOut lockedBuffer
		code := run(t.Context(), append([]string{"--server", f.Server.ClientURL()}, args...), streams{
			in: strings.NewReader(""), out: fullDisk{}, err: &errOut, env: func(string) string { return "" },
		})
		if code != exitError || !strings.Contains(errOut.String(), "no space left") {
			t.Errorf("%s: code %d, want %d and the reason: %s", args[0], code, exitError, errOut.String())
		}
		f.until(t, "s", func(ev *client.Event) bool {
			_, ok := ev.Event.(*loop.AgentSettled)
			return ok
		})
	}
}

func TestPromptBelowARunEndsWithIt(t *testing.T) {
	hold := make(chan struct{})
	f := newFleet(t, looptest.Reply{Text: "endless words", Hold: hold}, looptest.Reply{Text: "endless words", Hold: hold}).startWorker(t)
	f.cli(t, "prompt", "--session", "boss", "--parent", "nobody", "hi").want(t, exitUnknown, "", "no such session")
	f.cli(t, "prompt", "--session", "boss", "--parent", "a b", "hi").want(t, exitUsage, "", "--parent")
	f.cli(t, "prompt", "--session", "boss", "--detach", "lead").want(t, exitOK, "boss", "")
	f.until(t, "boss", isTextDelta)
	var r result
	var wg sync.WaitGroup
	wg.Go(func() { r = f.cli(t, "prompt", "--session", "hand", "--parent", "boss", "help") })
	f.until(t, "hand", isTextDelta)
	f.cli(t, "abort", "boss").want(t, exitOK, "", "")
	wg.Wait()
	r.want(t, exitAborted, "endless ", "parent_aborted")
}
