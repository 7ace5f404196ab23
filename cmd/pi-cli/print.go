package main

import (
	"fmt"
	"io"
	"os"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
)

// printer shows a session's events in one of three forms: text for people,
// pi's events as JSON, or events as they are stored.
type printer struct {
	app        *app
	render     *renderer // nil for JSON
	json, wire bool
	buf        []byte
}

func (a *app) printer(opts renderOptions, asJSON, wire bool) *printer {
	p := &printer{app: a, json: asJSON, wire: wire}
	if !asJSON && !wire {
		p.render = newRenderer(a.out, a.err, opts)
	}
	return p
}

// renderOptions are what the surroundings say.
func (a *app) renderOptions() renderOptions {
	opts := renderOptions{
		Terminal:       isTerminal(a.out),
		ChromeTerminal: isTerminal(a.err),
		Quiet:          a.quiet,
		Users:          true,
		Noted:          a.noted.Load,
	}
	opts.Apart = !opts.Terminal && apart(a.out, a.err)
	opts.Color = opts.ChromeTerminal && a.mayColor()
	opts.Columns, opts.Rows = terminalSize(a.out)
	return opts
}

// apart says that two writers are surely not the same file: with 2>&1 they are.
func apart(out, err io.Writer) bool {
	o, ok := out.(*os.File)
	e, also := err.(*os.File)
	if !ok || !also {
		return false
	}
	a, errA := o.Stat()
	b, errB := e.Stat()
	return errA == nil && errB == nil && !os.SameFile(a, b)
}

// mayColor is false when the user has said no (https://no-color.org).
func (a *app) mayColor() bool { return a.env("NO_COLOR") == "" && a.env("TERM") != "dumb" }

// Note says something between the events.
func (p *printer) Note(format string, args ...any) {
	if p.render != nil {
		p.render.Close()
	}
	p.app.note(format, args...)
}

// Status shows a line that the first event replaces, on a terminal only.
func (p *printer) Status(text string) {
	if p.render != nil {
		p.render.setStatus(text)
	}
}

// Print shows one event. A gap is told on stderr in every form.
func (p *printer) Print(ev *client.Event) error {
	if ev.Gap != nil {
		p.app.noteGap(ev.Gap)
		return nil
	}
	if p.render != nil {
		p.render.Event(ev.Event, ev.Time)
		return p.render.Err()
	}
	p.buf = p.buf[:0]
	if p.wire {
		p.buf = append(p.buf, ev.Line...)
	} else {
		p.buf = loop.AppendEvent(p.buf, ev.Event)
	}
	p.buf = append(p.buf, '\n')
	if _, err := p.app.out.Write(p.buf); err != nil {
		return fmt.Errorf("writing to standard output: %w", err)
	}
	return nil
}

func (a *app) noteGap(gap *client.Gap) {
	a.note("! the log has a gap: sequences %d to %d are gone", gap.From, gap.To)
}

// Close ends an open line.
func (p *printer) Close() {
	if p.render != nil {
		p.render.Close()
	}
}
