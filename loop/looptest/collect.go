package looptest

import (
	"iter"

	"github.com/pi-worker/pi-worker/loop"
)

// Collect reads a run to its end and gives its events and the error that
// ended it, if any. Events are kept as they are: an update's Partial shows the
// whole message by then.
func Collect(seq iter.Seq2[loop.Event, error]) ([]loop.Event, error) {
	var events []loop.Event
	for ev, err := range seq {
		if err != nil {
			return events, err
		}
		events = append(events, ev)
	}
	return events, nil
}

// Types lists the events' types, in order.
func Types(events []loop.Event) []string {
	out := make([]string, len(events))
	for i, ev := range events {
		out[i] = ev.EventType()
	}
	return out
}

// Messages lists the messages of the message_end events, in order.
func Messages(events []loop.Event) []loop.Message {
	var out []loop.Message
	for _, ev := range events {
		if end, ok := ev.(*loop.MessageEnd); ok {
			out = append(out, end.Message)
		}
	}
	return out
}
