package main

import (
	"context"
	"fmt"

	"github.com/pi-worker/pi-worker/client"
	"github.com/pi-worker/pi-worker/loop"
)

// demoSession is the session of the demo.
const demoSession = "demo"

// killAfter is how many pieces of an answer are seen before its worker dies.
const killAfter = 12

// play prompts, and reacts to what happens: a steer after the first tool call,
// a follow-up behind it, SIGKILL in the middle of the answer that follows the
// steer.
func (d *demo) play(ctx context.Context) error {
	d.app.note("· prompt: %s", demoPrompt)
	receipt, err := d.client.Prompt(ctx, demoSession, loop.NewUserText(demoPrompt), nil)
	if err != nil {
		return err
	}
	opts := d.app.renderOptions()
	opts.SkipUsers = 1
	p := d.app.printer(opts, false, false)
	defer p.Close()
	s := stage{demo: d, printer: p}
	for ev, err := range d.client.Tail(ctx, receipt.Session, &client.TailOptions{Wait: true, UntilSettled: true}) {
		if err != nil {
			return err
		}
		if err := p.Print(ev); err != nil {
			return err
		}
		if err := s.react(ctx, ev); err != nil {
			return err
		}
	}
	return nil
}

// stage is what the director of the demo knows.
type stage struct {
	demo      *demo
	printer   *printer
	owner     string // worker that holds the session
	sent      bool   // steer and follow-up
	delivered bool   // the steer
	pieces    int    // of the answer that is being given
	killed    string
}

func (s *stage) react(ctx context.Context, ev *client.Event) error {
	for _, in := range ev.Inputs {
		s.delivered = s.delivered || in.Kind == client.KindSteer
	}
	switch e := ev.Event.(type) {
	case *loop.SessionClaimed:
		s.owner = e.Worker
		s.printer.Note("· %s holds the session", e.Worker)
	case *loop.MessageStart:
		s.pieces = 0
	case *loop.ToolExecutionEnd:
		return s.talk(ctx)
	case *loop.MessageUpdate:
		if e.Update.Type == loop.UpdateTextDelta {
			s.pieces++
		}
		if s.delivered && s.killed == "" && s.pieces >= killAfter {
			return s.kill()
		}
	}
	return nil
}

// talk sends the steer and the follow-up, once.
func (s *stage) talk(ctx context.Context) error {
	if s.sent {
		return nil
	}
	s.sent = true
	c := s.demo.client
	if _, err := c.Steer(ctx, demoSession, loop.NewUserText(demoSteer), nil); err != nil {
		return err
	}
	if _, err := c.FollowUp(ctx, demoSession, loop.NewUserText(demoFollowUp), nil); err != nil {
		return err
	}
	s.printer.Note("· steered, and a follow-up is waiting")
	return nil
}

// kill ends the worker that holds the session, as a crash would.
func (s *stage) kill() error {
	for _, w := range s.demo.fleet {
		if w.name != s.owner {
			continue
		}
		s.killed = w.name
		if err := w.kill(); err != nil {
			return err
		}
		s.printer.Note("· SIGKILL to %s (process %d), in mid-answer; its lease ends within %s", w.name, w.cmd.Process.Pid, demoAckWait)
		return nil
	}
	return fmt.Errorf("the session is held by %q, which is not of this demo", s.owner)
}
