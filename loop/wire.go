package loop

import "errors"

var errTODO = errors.New("loop: codec under construction")

func AppendWire(dst []byte, ev Event) []byte   { return dst }
func ParseWire(line []byte) (Event, error)     { return nil, errTODO }
func AppendEvent(dst []byte, ev Event) []byte  { return dst }
func ParseEvent(b []byte) (Event, error)       { return nil, errTODO }
func ParseMessage(b []byte) (Message, error)   { return nil, errTODO }
func MarshalMessage(m Message) ([]byte, error) { return nil, errTODO }

// Expander turns wire events into pi's events.
type Expander struct{}

// Expand returns zero, one or two events (a message_start of a message that is
// not streamed is held back until its message_end brings the content). The
// slice is reused by the next call.
func (x *Expander) Expand(ev Event) ([]Event, error) { return nil, errTODO }

// Flush returns what is held back.
func (x *Expander) Flush() []Event { return nil }
