package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
)

func (a *app) showCommand() *cobra.Command {
	var form showForm
	cmd := &cobra.Command{
		Use:               "show [flags] SESSION",
		Short:             "Print a session's transcript",
		Long:              "show prints the session's finished messages. With --json they are pi's, one a line.",
		Args:              sessionArg,
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.show(cmd.Context(), args[0], form)
		},
	}
	cmd.Flags().BoolVar(&form.json, "json", false, "print pi's messages, one JSON a line")
	cmd.Flags().BoolVar(&form.markdown, "markdown", false, "print Markdown; on a terminal it is rendered")
	cmd.Flags().StringVar(&form.output, "output", "", "print the whole output of a tool `call` whose result has a part of it")
	cmd.Flags().BoolVar(&form.html, "html", false, "print one self-contained HTML page")
	return cmd
}

func (a *app) show(ctx context.Context, session string, form showForm) error {
	if form.output != "" {
		if form.json || form.markdown || form.html {
			return usageErrorf("--output goes with none of --json, --markdown and --html")
		}
		return a.showOutput(ctx, session, form.output)
	}
	if form.json && (form.markdown || form.html) || form.markdown && form.html {
		return usageErrorf("only one of --json, --markdown and --html")
	}
	c, closeAll, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, stop := a.untilInterrupted(ctx, nil)
	defer stop()
	transcript, err := c.Transcript(ctx, session)
	if err != nil {
		return err
	}
	if err := a.noteGone(ctx, c, session); err != nil {
		return err
	}
	switch {
	case form.json:
		return writeMessages(a.out, transcript.Messages())
	case form.html:
		return writeHTML(a.out, session, transcript.Messages())
	case form.markdown:
		return a.showMarkdown(session, transcript.Messages())
	}
	if err := writeTranscript(a.out, transcript.Messages(), a.renderOptions()); err != nil {
		return err
	}
	if transcript.Open() != nil {
		a.note("… a run is open: pi-cli tail %s", session)
	}
	return nil
}

// noteGone says on stderr that the log's beginning, or all of it, is gone.
func (a *app) noteGone(ctx context.Context, c *client.Client, session string) error {
	for ev, err := range c.Tail(ctx, session, &client.TailOptions{NoFollow: true, Wire: true}) {
		if err != nil || ev.Gap == nil {
			return err
		}
		a.noteGap(ev.Gap)
	}
	return nil
}

// showForm is what show prints; the zero value is the plain transcript.
type showForm struct {
	json, markdown, html bool
	output               string // a call's id: its output and nothing else
}

// showOutput writes the output as the command wrote it, except to a terminal,
// which it must not steer.
func (a *app) showOutput(ctx context.Context, session, call string) error {
	c, closeAll, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, stop := a.untilInterrupted(ctx, nil)
	defer stop()
	in, err := c.Output(ctx, session, call)
	if err != nil {
		return err
	}
	defer in.Close()
	if !isTerminal(a.out) {
		if _, err := io.Copy(a.out, in); err != nil {
			return fmt.Errorf("writing the output of %s: %w", call, err)
		}
		return nil
	}
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadString('\n')
		if _, err := io.WriteString(a.out, safeText(line)); err != nil {
			return fmt.Errorf("writing to standard output: %w", err)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the output of %s: %w", call, err)
		}
	}
}

func (a *app) showMarkdown(session string, messages []loop.Message) error {
	text := markdown(session, messages)
	if columns, _ := terminalSize(a.out); isTerminal(a.out) {
		var err error
		if text, err = rendered(text, columns); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(a.out, text); err != nil {
		return fmt.Errorf("writing to standard output: %w", err)
	}
	return nil
}

func writeMessages(w io.Writer, messages []loop.Message) error {
	for _, m := range messages {
		b, err := loop.MarshalMessage(m)
		if err != nil {
			return fmt.Errorf("encoding a message: %w", err)
		}
		if _, err := w.Write(append(b, '\n')); err != nil {
			return fmt.Errorf("writing to standard output: %w", err)
		}
	}
	return nil
}

// writeTranscript prints messages for people: everything is on w, in the
// renderer's own signs.
func writeTranscript(w io.Writer, messages []loop.Message, opts renderOptions) error {
	opts.Color = opts.Color && opts.Terminal
	opts.ChromeTerminal, opts.Quiet = false, false
	r := newRenderer(w, w, opts)
	for _, m := range messages {
		switch m := m.(type) {
		case *loop.AssistantMessage:
			r.messageEnd(m)
			for _, call := range toolCalls(m) {
				r.tools[call.ID] = startedTool{args: call.Arguments}
			}
		case *loop.ToolResultMessage:
			started := r.tools[m.ToolCallID]
			r.toolEnd(&loop.ToolExecutionEnd{
				ToolCallID: m.ToolCallID, ToolName: m.ToolName, IsError: m.IsError,
				Result: loop.ToolResult{Content: m.Content},
			}, started.at)
		case *loop.UserMessage:
			text, images := contentOf(m.Content)
			r.paragraph("» ", text, images)
		default:
			r.line(dim, "("+m.Role()+" message)")
		}
	}
	r.Close()
	return r.Err()
}

func toolCalls(m *loop.AssistantMessage) []*loop.ToolCall {
	var calls []*loop.ToolCall
	for _, block := range m.Content {
		if call, ok := block.(*loop.ToolCall); ok {
			calls = append(calls, call)
		}
	}
	return calls
}
