package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/pi-worker/pi-worker/loop"
)

// renderer turns pi's events into text for people: the model's words on out,
// as they arrive, and one line for everything else on chrome.
//
// On a terminal text is made harmless (see safeText) and a discarded answer is
// wiped; anywhere else it is passed on byte for byte, and after a discard the
// answer starts again on a new line, with a word on chrome.
type renderer struct {
	out    *sink
	chrome io.Writer
	opts   renderOptions

	answer answerState
	tools  map[string]startedTool
	turns  int
	status bool     // a transient line stands on chrome
	held   []string // lines that wait for what becomes of the half answer
}

// renderOptions are what a renderer must know of its surroundings.
type renderOptions struct {
	Terminal       bool // out is a terminal
	ChromeTerminal bool // chrome is a terminal
	Apart          bool // out is read by a program, and chrome goes elsewhere
	Color          bool // colours on chrome
	Thinking       bool // show the model's reasoning on chrome
	Quiet          bool // nothing on chrome but failures
	Users          bool // show what people said
	SkipUsers      int  // messages of people to leave out first
	// Size of the terminal in characters; 0 is unknown, and then nothing is
	// wiped.
	Columns, Rows int
	// Noted, if not nil, counts what others have written to the terminal.
	Noted func() int64
}

// answerState is the answer that is being streamed.
type answerState struct {
	open     bool
	printed  []int  // bytes printed of each block
	text     string // what is on the terminal of this answer, if wiping may be needed
	midLine  bool   // the last thing on out is no newline
	disturbs bool   // chrome was written since the answer began
	thinking bool   // reasoning stands on chrome without a newline
	noted    int64  // renderOptions.Noted when the answer began
}

type startedTool struct {
	args []byte
	at   time.Time
}

func newRenderer(out, chrome io.Writer, opts renderOptions) *renderer {
	r := &renderer{out: &sink{w: out}, chrome: chrome, opts: opts, tools: map[string]startedTool{}}
	if out == chrome {
		r.chrome = r.out
	}
	return r
}

// Err is the first error of writing to out: an answer that could not be
// written must not end as a success.
func (r *renderer) Err() error {
	if r.out.err != nil {
		return fmt.Errorf("writing to standard output: %w", r.out.err)
	}
	return nil
}

// sink remembers the first error of a writer, and writes nothing after it.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	s.err = err
	return n, err
}

// Event renders one event that happened at a time; see Err for its failures.
func (r *renderer) Event(ev loop.Event, at time.Time) {
	switch ev.(type) {
	case *loop.MessageDiscarded, *loop.SessionClaimed, *loop.RunReleased, *loop.RunLost, *loop.RunResumed:
	default:
		r.release()
	}
	switch e := ev.(type) {
	case *loop.TurnStart:
		r.turns++
	case *loop.MessageStart:
		r.messageStart(e.Message)
	case *loop.MessageUpdate:
		r.messageUpdate(e)
	case *loop.MessageEnd:
		r.messageEnd(e.Message)
	case *loop.MessageDiscarded:
		r.discard(e)
	case *loop.ToolExecutionStart:
		r.tools[e.ToolCallID] = startedTool{args: e.Args, at: at}
		r.setStatus("… " + e.ToolName + " " + toolArgs(e.Args))
	case *loop.ToolExecutionEnd:
		r.toolEnd(e, at)
	case *loop.AgentSettled:
		r.settled(e)
	default:
		r.own(ev, at)
	}
}

// own renders the events that are this product's, not pi's.
func (r *renderer) own(ev loop.Event, at time.Time) {
	switch e := ev.(type) {
	case *loop.RunLost:
		text := "! worker " + e.Worker + " is lost"
		if silent := at.Sub(time.UnixMilli(e.Since)).Round(time.Second); e.Since != 0 && silent > 0 {
			text += fmt.Sprintf(", silent for %s", silent)
		}
		r.hold(text)
	case *loop.LeaseLost:
		r.line(yellow, "! worker "+e.Worker+" could not give the session back: "+e.Reason)
	case *loop.RunResumed:
		r.hold(fmt.Sprintf("↻ another worker goes on with this run (attempt %d): %s", e.Attempt, e.Reason))
	case *loop.AutoRetryStart:
		r.line(yellow, fmt.Sprintf("↻ retry %d of %d in %s: %s", e.Attempt, e.MaxAttempts, e.Delay, e.ErrorMessage))
	case *loop.CompactionStart:
		r.setStatus("… summarising a context that is too long")
	case *loop.CompactionEnd:
		if c := e.Result; c != nil {
			r.line(yellow, fmt.Sprintf("≡ context summarised: about %d tokens, now %d", c.TokensBefore, c.TokensAfter))
		} else {
			r.line(yellow, "≡ context not summarised: "+e.ErrorMessage)
		}
	case *loop.InputReturned:
		text := fmt.Sprintf("↩ %s %d returned (%s)", e.Kind, e.Seq, e.Reason)
		if said := inputText(e.Input); said != "" {
			text += ": " + said
		}
		r.line(yellow, text)
	case *loop.ToolsChanged:
		r.line(yellow, toolsChanged(e))
	case *loop.WorkspaceUnsaved:
		r.line(yellow, "! the files of this session were not saved: "+e.ErrorMessage)
	case *loop.Waiting:
		since := at.Sub(time.UnixMilli(e.Since)).Round(time.Second)
		r.setStatus(fmt.Sprintf("… waiting for %s (%s)", e.For, max(since, 0)))
	}
}

func toolsChanged(e *loop.ToolsChanged) string {
	text := "± tools of " + e.Source
	if len(e.Added) > 0 {
		text += ", there: " + strings.Join(e.Added, " ")
	}
	if len(e.Removed) > 0 {
		text += ", gone: " + strings.Join(e.Removed, " ")
	}
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}

func (r *renderer) messageStart(m loop.Message) {
	switch m := m.(type) {
	case *loop.AssistantMessage:
		r.answer = answerState{open: true, midLine: r.answer.midLine, noted: r.noted()}
		r.setStatus("… thinking")
	case *loop.UserMessage:
		if r.opts.SkipUsers > 0 {
			r.opts.SkipUsers--
		} else if r.opts.Users {
			r.line(bold, "» "+summary(m.Content))
		}
	}
}

func (r *renderer) messageUpdate(e *loop.MessageUpdate) {
	switch e.Update.Type {
	case loop.UpdateTextDelta:
		r.textDelta(e)
	case loop.UpdateThinkingDelta:
		if r.opts.Thinking && !r.opts.Quiet {
			r.clearStatus()
			if !r.opts.Apart {
				r.endLine()
			}
			io.WriteString(r.chrome, r.paint(dim, safeText(e.Update.Delta)))
			r.answer.thinking, r.answer.disturbs = true, true
		}
	case loop.UpdateToolCallStart:
		r.setStatus("… writing a tool call")
	}
}

// textDelta prints the new text. A reader that joined in the middle of an
// answer gets what came before from the partial message.
func (r *renderer) textDelta(e *loop.MessageUpdate) {
	text := e.Update.Delta
	index := e.Update.ContentIndex
	if whole, ok := textOf(e.Partial, index); ok {
		text = whole[min(r.answer.printedOf(index), len(whole)):]
	}
	r.print(index, text)
}

// messageEnd prints what was not streamed, and ends the line.
func (r *renderer) messageEnd(m loop.Message) {
	answer, ok := m.(*loop.AssistantMessage)
	if !ok {
		return
	}
	for i := range answer.Content {
		if whole, ok := textOf(answer, i); ok {
			r.print(i, whole[min(r.answer.printedOf(i), len(whole)):])
		}
	}
	r.endLine()
	r.answer = answerState{}
	if answer.StopReason == loop.StopError || answer.StopReason == loop.StopLength {
		r.stopLine(answer)
	}
}

func (r *renderer) stopLine(answer *loop.AssistantMessage) {
	if answer.StopReason == loop.StopLength {
		r.line(yellow, "! the answer was cut at the model's length limit")
		return
	}
	r.line(red, "! the model failed: "+answer.ErrorMessage)
}

// discard takes back the half answer.
func (r *renderer) discard(e *loop.MessageDiscarded) {
	wiped := r.wipe()
	if !wiped {
		r.endLine()
	}
	had := r.answer.text != "" || r.answer.anyPrinted()
	r.answer = answerState{}
	r.release()
	switch {
	case wiped:
		r.line(yellow, "↻ half an answer was taken back ("+e.Reason+")")
	case had:
		r.line(yellow, "↻ the text above is discarded ("+e.Reason+"); the answer starts again")
	}
}

// hold prints a line, unless half an answer stands there: nothing may come
// between it and its discard, or it could not be wiped.
func (r *renderer) hold(text string) {
	r.held = append(r.held, text)
	if !r.answer.open {
		r.release()
	}
}

// release prints the lines that waited.
func (r *renderer) release() {
	held := r.held
	r.held = nil
	for _, text := range held {
		r.line(yellow, text)
	}
}

// wipe removes the half answer from the terminal, if it is all still there.
func (r *renderer) wipe() bool {
	if !r.opts.Terminal || r.opts.Columns <= 0 || r.answer.text == "" {
		return false
	}
	if r.answer.disturbs || r.answer.noted != r.noted() {
		return false
	}
	r.clearStatus()
	rows := rowsOf(r.answer.text, r.opts.Columns)
	if rows >= r.opts.Rows {
		return false
	}
	io.WriteString(r.out, "\r")
	if rows > 1 {
		fmt.Fprintf(r.out, "\x1b[%dA", rows-1)
	}
	io.WriteString(r.out, "\x1b[J")
	r.answer.midLine = false
	return true
}

// rowsOf counts the terminal rows that a text takes; the cursor is on the last.
func rowsOf(text string, columns int) int {
	rows := 0
	for line := range strings.SplitSeq(text, "\n") {
		width := runewidth.StringWidth(line) + 7*strings.Count(line, "\t")
		rows += max(1, (width+columns-1)/columns)
	}
	return rows
}

func (r *renderer) toolEnd(e *loop.ToolExecutionEnd, at time.Time) {
	started, known := r.tools[e.ToolCallID]
	delete(r.tools, e.ToolCallID)
	mark, style := "✓", green
	if e.IsError {
		mark, style = "✗", red
	}
	text := mark + " " + e.ToolName
	if known {
		text += " " + toolArgs(started.args)
	}
	text += " → " + outcomeOf(e)
	if took := at.Sub(started.at); known && took >= time.Second {
		text += fmt.Sprintf(" (%s)", took.Round(100*time.Millisecond))
	}
	r.line(style, text)
}

func (r *renderer) settled(e *loop.AgentSettled) {
	style, mark := green, "✓"
	if e.Outcome != loop.OutcomeCompleted {
		style, mark = red, "✗"
	}
	parts := []string{mark + " " + string(e.Outcome)}
	if r.turns > 0 {
		parts = append(parts, plural(r.turns, "turn"))
	}
	if e.Attempts > 1 {
		parts = append(parts, plural(e.Attempts, "attempt"))
	}
	if u := e.Usage; u.TotalTokens > 0 || u.Output > 0 {
		parts = append(parts, fmt.Sprintf("%d in, %d out", u.Input+u.CacheRead+u.CacheWrite, u.Output))
	}
	if e.Usage.Cost.Total > 0 {
		parts = append(parts, fmt.Sprintf("$%.4f", e.Usage.Cost.Total))
	}
	text := strings.Join(parts, " · ")
	if e.ErrorMessage != "" {
		text += ": " + e.ErrorMessage
	}
	r.line(style, text)
	r.turns = 0
}

// Close ends an open line.
func (r *renderer) Close() {
	r.release()
	r.clearStatus()
	r.endLine()
}

// print writes text of the answer's block.
func (r *renderer) print(index int, text string) {
	if text == "" {
		return
	}
	r.clearStatus()
	r.endThinking()
	a := &r.answer
	for len(a.printed) <= index {
		a.printed = append(a.printed, 0)
	}
	if a.printed[index] == 0 && a.midLine && index > 0 {
		// Two text blocks of one answer stand apart.
		io.WriteString(r.out, "\n")
		a.text += "\n"
	}
	a.printed[index] += len(text)
	if r.opts.Terminal {
		text = safeText(text)
		a.text += text
	}
	io.WriteString(r.out, text)
	a.midLine = !strings.HasSuffix(text, "\n")
}

// endLine makes the answer end with a newline.
func (r *renderer) endLine() {
	r.endThinking()
	if r.answer.midLine {
		io.WriteString(r.out, "\n")
		r.answer.midLine = false
	}
}

func (r *renderer) endThinking() {
	if r.answer.thinking {
		io.WriteString(r.chrome, "\n")
		r.answer.thinking = false
	}
}

// line writes one line of chrome. Failures are worth breaking --quiet for.
func (r *renderer) line(s style, text string) {
	if r.opts.Quiet && s != red {
		return
	}
	r.clearStatus()
	if r.opts.Apart && r.answer.open {
		r.endThinking() // no newline into an answer that the model did not write
	} else {
		r.endLine()
	}
	r.answer.disturbs = true
	fmt.Fprintln(r.chrome, r.paint(s, safeLine(text, 0)))
}

// paragraph writes text of several lines with a mark before it.
func (r *renderer) paragraph(mark, text string, images int) {
	r.endLine()
	if images > 0 {
		text += " [" + plural(images, "image") + "]"
	}
	if r.opts.Terminal {
		text = safeText(text)
	}
	fmt.Fprintln(r.out, r.paint(bold, mark+strings.TrimRight(text, "\n")))
}

// setStatus shows a line that the next output replaces; on terminals only, and
// never in the middle of an answer's line.
func (r *renderer) setStatus(text string) {
	if !r.opts.ChromeTerminal || r.opts.Quiet || r.answer.midLine || r.answer.thinking {
		return
	}
	limit := 76
	if r.opts.Columns > 4 {
		limit = r.opts.Columns - 4
	}
	r.clearStatus()
	io.WriteString(r.chrome, r.paint(dim, safeLine(text, limit)))
	r.status = true
}

func (r *renderer) clearStatus() {
	if r.status {
		io.WriteString(r.chrome, "\r\x1b[K")
		r.status = false
	}
}

func (r *renderer) noted() int64 {
	if r.opts.Noted == nil {
		return 0
	}
	return r.opts.Noted()
}

func (a *answerState) printedOf(index int) int {
	if index < len(a.printed) {
		return a.printed[index]
	}
	return 0
}

func (a *answerState) anyPrinted() bool {
	for _, n := range a.printed {
		if n > 0 {
			return true
		}
	}
	return false
}
