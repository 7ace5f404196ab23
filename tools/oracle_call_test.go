package tools

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/loop/looptest"
)

// outputFile is where this package keeps whole outputs; the oracle's name for
// it is $TMP.
var outputFile = regexp.MustCompile(`\.pi-worker/output/bash-[0-9a-f]{16}\.log`)

// rawCall is what one call gave, before it is put in the oracle's words. It
// also travels from the process that runs as another user.
type rawCall struct {
	IsError  bool
	Content  []oracleBlock
	Details  json.RawMessage
	Executed bool // false: the arguments were refused
	Args     json.RawMessage
	Updates  []oracleUpdate
}

type rawRun struct {
	Calls []rawCall
	Took  time.Duration
	Err   string
}

// spy notes which calls were executed, and with what.
type spy struct {
	loop.Tool
	mu   *sync.Mutex
	seen map[string]json.RawMessage
}

func (s *spy) PrepareArguments(args json.RawMessage) (json.RawMessage, error) {
	return s.Tool.(loop.ArgumentPreparer).PrepareArguments(args)
}

func (s *spy) Execute(ctx context.Context, call loop.Call, update func(loop.ToolResult)) (loop.ToolResult, error) {
	s.mu.Lock()
	s.seen[call.ID] = call.Args
	s.mu.Unlock()
	return s.Tool.Execute(ctx, call, update)
}

// run makes the case's calls by the real loop.
func (s *sandbox) run(c *oracleCase, change func(*Options)) (*rawRun, error) {
	opt, err := s.options(c)
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(opt)
	}
	dir := s.ws
	if c.Cwd != "" {
		dir = s.places.Replace(c.Cwd)
	}
	w, err := Open(dir, opt)
	if err != nil {
		return &rawRun{Calls: []rawCall{{IsError: true, Executed: true, Details: emptyDetails,
			Content: []oracleBlock{{Type: "text", Text: err.Error()}}}}}, nil
	}
	defer w.Close()
	if c.RemoveWorkspaceFirst {
		if err := os.RemoveAll(s.ws); err != nil {
			return nil, err
		}
	}
	list, err := w.Tools(c.Tool)
	if err != nil {
		return nil, err
	}
	watch := &spy{Tool: list[0], mu: new(sync.Mutex), seen: map[string]json.RawMessage{}}
	args := c.Calls
	if args == nil {
		args = []json.RawMessage{c.Args}
	}
	batches := [][]json.RawMessage{args}
	if !c.Parallel {
		batches = slices.Collect(slices.Chunk(args, 1))
	}
	out := &rawRun{}
	for _, batch := range batches {
		calls, took, err := s.runBatch(c, watch, batch)
		if err != nil {
			return nil, err
		}
		out.Calls, out.Took = append(out.Calls, calls...), out.Took+took
	}
	return out, nil
}

func (s *sandbox) runBatch(c *oracleCase, tool *spy, batch []json.RawMessage) ([]rawCall, time.Duration, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var calls []looptest.Call
	for i, raw := range batch {
		args, err := expandArgs(raw, s.places)
		if err != nil {
			return nil, 0, err
		}
		calls = append(calls, looptest.Call{ID: fmt.Sprintf("call%d", i), Name: c.Tool, Args: string(args)})
	}
	if c.Abort != nil && c.Abort.Before {
		return abortedCall(ctx, cancel, tool, calls[0])
	}
	var timer *time.Timer
	cfg := &loop.Config{
		Model: looptest.NewModel(looptest.Calls(calls...), looptest.Text("done")),
		Tools: []loop.Tool{tool},
	}
	results := make([]rawCall, len(calls))
	var start time.Time
	var took time.Duration
	for ev, err := range loop.Run(ctx, cfg, nil, loop.NewUserText("go")) {
		if err != nil {
			return nil, 0, err
		}
		switch ev := ev.(type) {
		case *loop.ToolExecutionStart:
			start = time.Now()
			if c.Abort != nil && timer == nil {
				timer = time.AfterFunc(time.Duration(c.Abort.AfterMs)*time.Millisecond, cancel)
			}
		case *loop.ToolExecutionUpdate:
			r := &results[indexOf(calls, ev.ToolCallID)]
			r.Updates = append(r.Updates, oracleUpdate{blocks(ev.PartialResult.Content), ev.PartialResult.Details})
		case *loop.ToolExecutionEnd:
			took = time.Since(start)
			r := &results[indexOf(calls, ev.ToolCallID)]
			r.IsError, r.Content, r.Details = ev.IsError, blocks(ev.Result.Content), ev.Result.Details
			tool.mu.Lock()
			r.Args, r.Executed = tool.seen[ev.ToolCallID], tool.seen[ev.ToolCallID] != nil
			tool.mu.Unlock()
		}
	}
	return results, took, nil
}

// abortedCall asks the tool itself: the loop would not even start it.
func abortedCall(ctx context.Context, cancel func(), tool *spy, call looptest.Call) ([]rawCall, time.Duration, error) {
	cancel()
	start := time.Now()
	r, err := tool.Execute(ctx, loop.Call{ID: call.ID, Name: call.Name, Args: json.RawMessage(call.Args)}, nil)
	if err == nil {
		return nil, 0, errors.New("an aborted call gave a result")
	}
	return []rawCall{{
		IsError: true, Executed: true, Details: emptyDetails,
		Content: append(blocks(r.Content), oracleBlock{Type: "text", Text: err.Error()}),
	}}, time.Since(start), nil
}

func indexOf(calls []looptest.Call, id string) int {
	return slices.IndexFunc(calls, func(c looptest.Call) bool { return c.ID == id })
}

func blocks(list []loop.Block) []oracleBlock {
	out := make([]oracleBlock, 0, len(list))
	for _, b := range list {
		switch b := b.(type) {
		case *loop.Text:
			out = append(out, oracleBlock{Type: "text", Text: b.Text})
		case *loop.Image:
			out = append(out, oracleBlock{Type: "image", Data: b.Data, MIMEType: b.MIMEType})
		default:
			out = append(out, oracleBlock{Type: b.BlockType()})
		}
	}
	return out
}

// options are those of a worker whose environment is the case's and whose
// allow list has what a shell needs.
func (s *sandbox) options(c *oracleCase) (*Options, error) {
	env := map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": s.home, "TMPDIR": s.tmp, "LANG": "C.UTF-8",
		"PI_CODING_AGENT_DIR": s.dir + "/agent", "PI_OFFLINE": "1",
	}
	for k, v := range c.Env {
		env[k] = s.places.Replace(v)
	}
	opt := &Options{
		Shell: c.Options.ShellPath, CommandPrefix: c.Options.CommandPrefix,
		KeepImages: c.Options.AutoResizeImages != nil && !*c.Options.AutoResizeImages,
		NoImages:   c.ModelInput != nil && !slices.Contains(c.ModelInput, "image"),
		Env:        []string{},
	}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG"} {
		opt.Env = append(opt.Env, name+"="+env[name])
	}
	return opt, nil
}

// result puts a run in the oracle's words.
func (s *sandbox) result(c *oracleCase, run *rawRun) (*oracleResult, error) {
	var list []oracleResult
	for i := range run.Calls {
		r, err := s.callResult(&run.Calls[i])
		if err != nil {
			return nil, err
		}
		list = append(list, *r)
	}
	out := &list[0]
	if c.Calls != nil {
		out = &oracleResult{Results: list}
	}
	if c.Record.Survivors {
		out.Survivors = new(s.survivors())
	}
	if names, _ := filepath.Glob(s.ws + "/" + privateDir + "/output/*"); names != nil {
		content, err := os.ReadFile(names[0])
		if err != nil {
			return nil, err
		}
		info, _ := os.Stat(names[0])
		sum := sha256.Sum256(content)
		out.FullOutput = &oracleEntry{Mode: fmt.Sprintf("%04o", info.Mode().Perm()), Bytes: len(content), SHA256: hex.EncodeToString(sum[:])}
		out.TmpEntries = []string{"pi-bash-$ID.log"}
		if !outputFile.MatchString(names[0]) || len(names) != 1 {
			out.TmpEntries = names
		}
	}
	var err error
	if !c.RemoveWorkspaceFirst {
		out.FilesAfter, err = s.filesAfter()
	}
	return out, err
}

func (s *sandbox) callResult(c *rawCall) (*oracleResult, error) {
	r := &oracleResult{IsError: c.IsError, Content: c.Content, EffectiveArgs: s.normalJSON(c.Args), Details: s.normalJSON(c.Details)}
	for i := range r.Content {
		b := &r.Content[i]
		b.Text = s.normal(b.Text)
		if b.Type != "image" {
			continue
		}
		img, err := s.image(b)
		if err != nil {
			return nil, err
		}
		r.Images = append(r.Images, *img)
	}
	if r.IsError {
		r.ThrownMessage, r.ErrorStage = r.text(), "validate"
		if c.Executed {
			r.ErrorStage = "execute"
		}
		r.ErrorCode, _, _ = strings.Cut(r.ThrownMessage, ":")
		if m := regexp.MustCompile(`Error code: (E[A-Z]+)\.`).FindStringSubmatch(r.ThrownMessage); m != nil {
			r.ErrorCode = m[1]
		}
	}
	for _, u := range c.Updates {
		for i := range u.Content {
			u.Content[i].Text = s.normal(u.Content[i].Text)
		}
		u.Details = s.normalJSON(u.Details)
		if r.Updates == nil {
			r.Updates = &oracleUpdates{First: u}
		}
		r.Updates.Last = joinUpdates(r.Updates.Last, u)
	}
	return r, nil
}

// joinUpdates is what a reader of our updates, which hold the new part only,
// has after the next one.
func joinUpdates(have, next oracleUpdate) oracleUpdate {
	out := oracleUpdate{Content: []oracleBlock{}, Details: next.Details}
	text := (&oracleResult{Content: append(slices.Clone(have.Content), next.Content...)}).text()
	if text != "" {
		out.Content = append(out.Content, oracleBlock{Type: "text", Text: text})
	}
	return out
}

func (s *sandbox) normal(text string) string {
	return s.names.Replace(outputFile.ReplaceAllString(text, "$$TMP"))
}

func (s *sandbox) normalJSON(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return nil
	}
	return json.RawMessage(s.normal(string(raw)))
}

func (s *sandbox) image(b *oracleBlock) (*oracleImage, error) {
	data, err := base64.StdEncoding.DecodeString(b.Data)
	if err != nil {
		return nil, err
	}
	img := &oracleImage{MIMEType: b.MIMEType}
	if b.MIMEType == "image/webp" {
		img.Width, img.Height = webpSize(data)
	} else {
		c, _, err := image.DecodeConfig(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		img.Width, img.Height = c.Width, c.Height
	}
	for p, content := range s.start {
		if bytes.Equal(content, data) {
			img.EqualsFile = new(strings.TrimPrefix(p, s.ws+"/"))
		}
	}
	return img, nil
}

// runAs makes the calls in a process of another user.
func (s *sandbox) runAs(t *testing.T, c *oracleCase) (*rawRun, error) {
	job := mustJSON(oracleJob{Case: *c, Dir: s.dir})
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOracleChild$", "-test.count=1")
	cmd.Env = append(os.Environ(), "TOOL_ORACLE_CHILD=1", "GOCOVERDIR="+s.tmp)
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(job)
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd.ExtraFiles = []*os.File{w}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	w.Close()
	var run rawRun
	decodeErr := json.NewDecoder(r).Decode(&run)
	if err := errors.Join(cmd.Wait(), decodeErr); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, log.String())
	}
	if run.Err != "" {
		return nil, errors.New(run.Err)
	}
	return &run, nil
}

type oracleJob struct {
	Case oracleCase
	Dir  string
}

// TestOracleChild is the other side of runAs.
func TestOracleChild(t *testing.T) {
	if os.Getenv("TOOL_ORACLE_CHILD") == "" {
		return // only a part of TestOracle
	}
	var job oracleJob
	if err := json.NewDecoder(os.Stdin).Decode(&job); err != nil {
		t.Fatal(err)
	}
	s := sandboxAt(job.Dir)
	run, err := s.run(&job.Case, nil)
	if err != nil {
		run = &rawRun{Err: err.Error()}
	}
	out := os.NewFile(3, "result")
	if err := json.NewEncoder(out).Encode(run); err != nil {
		t.Fatal(err)
	}
}
