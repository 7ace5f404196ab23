package openai

import (
	"bytes"
	"errors"
	"io"
)

// MaxLine is the longest line, and the largest event, that a [Reader] takes,
// in bytes.
const MaxLine = 64 << 20

// ErrTooLong says that a line or an event is longer than [MaxLine].
var ErrTooLong = errors.New("openai: event stream: a line is longer than 64 MiB")

// A reader begins with a small buffer, which is enough for a model that writes
// token by token, and takes a larger one when a read fills it at once.
const (
	firstSize = 4 << 10
	readSize  = 32 << 10
)

// Event is one server-sent event with data. Its slices are valid until the
// next call of Next.
type Event struct {
	Name []byte // of the "event" field, nil if there was none
	Data []byte // all "data" lines, joined by newlines
	// Last says that the stream ended without the blank line that should
	// follow: the event may be cut.
	Last bool
}

// Reader reads server-sent events. Comments, ids, retry times, unknown fields
// and events without data are skipped; lines end in LF, CR or CRLF; a byte
// order mark at the start is no part of the first line.
type Reader struct {
	r   io.Reader
	err error // sticky, from r
	max int

	buf        []byte
	start, end int  // the unread part of buf
	keep       int  // start of the pending event's data in buf, -1 if none
	lf         int  // the first LF at or after start, -1 if there is none before lfSeen
	lfSeen     int  // buf[start:lfSeen] was searched for LF
	crSeen     int  // buf[start:crSeen] has no CR
	skipLF     bool // the last line ended in CR: an LF that follows belongs to it
	begun      bool // the first line was read
	fast       bool // a read has filled most of the buffer

	dataEnd int    // buf[keep:dataEnd] is the only data line so far
	joined  []byte // several data lines
	lines   int    // data lines of the pending event
	name    []byte
}

// NewReader reads events from r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: r, max: MaxLine, keep: -1, lf: -1}
}

// Next is the next event. At the end of the stream it returns io.EOF, after a
// broken read that error, and [ErrTooLong] for a line over the limit; all of
// them for good.
func (r *Reader) Next() (Event, error) {
	r.reset()
	for {
		from, to, err := r.line()
		if err != nil {
			return r.last(err)
		}
		if from < to {
			if err := r.field(from, to); err != nil {
				r.fail(err)
				return Event{}, err
			}
			continue
		}
		if ev := r.event(); len(ev.Data) > 0 {
			return ev, nil
		}
		r.reset()
	}
}

// last is what is left when the stream is over: an event without its blank
// line, if the end was clean.
func (r *Reader) last(err error) (Event, error) {
	if err == io.EOF {
		if ev := r.event(); len(ev.Data) > 0 {
			ev.Last = true
			return ev, nil
		}
	}
	return Event{}, err
}

func (r *Reader) reset() {
	r.keep, r.dataEnd, r.lines = -1, 0, 0
	r.joined, r.name = r.joined[:0], r.name[:0]
}

func (r *Reader) event() Event {
	var ev Event
	if len(r.name) > 0 {
		ev.Name = r.name
	}
	switch r.lines {
	case 0:
	case 1:
		ev.Data = r.buf[r.keep:r.dataEnd]
	default:
		ev.Data = r.joined
	}
	return ev
}

// field takes buf[from:to], one line of the pending event.
func (r *Reader) field(from, to int) error {
	line := r.buf[from:to]
	name, value := line, line[len(line):]
	if i := bytes.IndexByte(line, ':'); i >= 0 {
		name, value = line[:i], line[i+1:]
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
	}
	switch string(name) {
	case "data":
		return r.data(to-len(value), to)
	case "event":
		r.name = append(r.name[:0], value...)
	}
	return nil
}

// data adds the data line buf[from:to]. The first one stays where it is.
func (r *Reader) data(from, to int) error {
	r.lines++
	switch r.lines {
	case 1:
		r.keep, r.dataEnd = from, to
		return nil
	case 2:
		r.joined = append(r.joined, r.buf[r.keep:r.dataEnd]...)
		r.keep = -1
	}
	if len(r.joined)+1+to-from > r.max {
		return ErrTooLong
	}
	r.joined = append(append(r.joined, '\n'), r.buf[from:to]...)
	return nil
}

// line is the next line, buf[from:to], without its end. The last line may lack
// its end.
func (r *Reader) line() (from, to int, err error) {
	for {
		if to, ok := r.find(); ok {
			from = r.consume(to)
			return from, to, nil
		}
		if r.err == nil {
			r.fill()
			continue
		}
		if r.start < r.end && r.err == io.EOF {
			from, to = r.bom(r.start), r.end
			r.start = r.end
			if from < to {
				return from, to, nil
			}
		}
		return 0, 0, r.err
	}
}

// find looks for the end of the line that begins at start.
func (r *Reader) find() (int, bool) {
	if r.skipLF && r.start < r.end {
		r.skipLF = false
		if r.buf[r.start] == '\n' {
			r.start++
		}
		if r.lf >= 0 && r.lf < r.start {
			r.lf, r.lfSeen = -1, r.start
		}
	}
	r.lfSeen, r.crSeen = max(r.lfSeen, r.start), max(r.crSeen, r.start)
	if r.lf < 0 {
		if i := bytes.IndexByte(r.buf[r.lfSeen:r.end], '\n'); i >= 0 {
			r.lf = r.lfSeen + i
		} else {
			r.lfSeen = r.end
		}
	}
	stop := r.end
	if r.lf >= 0 {
		stop = r.lf
	}
	if r.crSeen < stop {
		if i := bytes.IndexByte(r.buf[r.crSeen:stop], '\r'); i >= 0 {
			r.crSeen += i
			return r.crSeen, true
		}
		r.crSeen = stop
	}
	return r.lf, r.lf >= 0
}

// consume takes the line that ends at to off the buffer, and gives its start.
func (r *Reader) consume(to int) int {
	from := r.bom(r.start)
	r.skipLF = r.buf[to] == '\r'
	if r.lf == to {
		r.lf, r.lfSeen = -1, to+1
	}
	r.start = to + 1
	return from
}

// bom skips a byte order mark at the start of the stream.
func (r *Reader) bom(from int) int {
	if !r.begun {
		r.begun = true
		if bytes.HasPrefix(r.buf[from:r.end], []byte("\xef\xbb\xbf")) {
			from += 3
		}
	}
	return from
}

// fill reads once. Unread bytes move to the front of the buffer only when it
// is full, so that a line is moved at most once for each doubling.
func (r *Reader) fill() {
	if r.end == len(r.buf) {
		r.room()
	}
	if r.end-r.start > r.max {
		r.fail(ErrTooLong)
		return
	}
	for range 100 {
		n, err := r.r.Read(r.buf[r.end:])
		r.end += n
		r.fast = r.fast || n > len(r.buf)/2
		if err != nil {
			r.err = err
			return
		}
		if n > 0 {
			return
		}
	}
	r.err = io.ErrNoProgress
}

// room makes space behind end.
func (r *Reader) room() {
	base := r.start
	if r.keep >= 0 {
		base = min(base, r.keep)
	}
	size := max(firstSize, len(r.buf))
	if r.end-base > size/2 {
		size *= 2
	}
	if r.fast {
		size = max(size, readSize)
	}
	dst := r.buf
	if size > len(dst) {
		dst = make([]byte, size)
	}
	copy(dst, r.buf[base:r.end])
	r.buf = dst
	r.start -= base
	r.end -= base
	r.lfSeen, r.crSeen = max(0, r.lfSeen-base), max(0, r.crSeen-base)
	if r.lf >= 0 {
		r.lf -= base
	}
	if r.keep >= 0 {
		r.keep -= base
		r.dataEnd -= base
	}
}

func (r *Reader) fail(err error) {
	r.err, r.start, r.end = err, 0, 0
	r.lf, r.lfSeen, r.crSeen = -1, 0, 0
}
