package openai

import (
	"encoding/json"
	"strings"
)

// callPiece is one element of a delta's tool_calls.
type callPiece struct {
	id       string
	index    int64
	hasIndex bool
	name     string
	args     []byte       // as it is written: a string, or an object
	extra    []namedField // fields that no one here knows
	pos, of  int          // its place in the list, and the list's length
}

type namedField struct{ name, value []byte }

func parsePiece(raw []byte) (c callPiece) {
	p := parser{b: raw}
	for ok := p.enter('{'); ok; ok = p.more('}') {
		switch key := p.key(); string(key) {
		case "id":
			c.id = str(p.raw())
		case "index":
			v := p.raw()
			if len(v) > 0 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9') {
				c.index, c.hasIndex = integer(v), true
			}
		case "function":
			c.function(p.raw())
		case "type":
			p.skip()
		default:
			// A name that differs from a known one by its case only would be
			// taken for that one by some servers.
			if v := p.raw(); !isNull(v) && !knownField(key) {
				c.extra = append(c.extra, namedField{key, v})
			}
		}
	}
	return c
}

func knownField(key []byte) bool {
	for _, known := range []string{"id", "index", "type", "function"} {
		if strings.EqualFold(string(key), known) {
			return true
		}
	}
	return false
}

func (p *callPiece) function(raw []byte) {
	if !isObject(raw) {
		return
	}
	f := parser{b: raw}
	for ok := f.enter('{'); ok; ok = f.more('}') {
		switch string(f.key()) {
		case "name":
			p.name = str(f.raw())
		case "arguments":
			p.args = f.raw()
		default:
			f.skip()
		}
	}
}

// hasArgs reports whether the piece brings arguments.
func (p *callPiece) hasArgs() bool { return !isNull(p.args) && string(p.args) != `""` }

// openCall is a call that is being streamed.
type openCall struct {
	id      string
	index   int64
	indexed bool
	block   *block
	thought string
	extra   extraSet
}

// full reports whether the call's arguments are whole, so that more of them
// would belong to another call.
func (c *openCall) full() bool {
	s := c.block.text.String()
	return strings.HasSuffix(strings.TrimSpace(s), "}") && json.Valid([]byte(s))
}

// callSet finds the call that a piece belongs to: by id, then by index, then
// by position. Servers send any of them late, doubled, or not at all.
type callSet struct {
	list     []*openCall
	thoughts map[string]string // encrypted reasoning before its call
}

// find gives the call of a piece; opened says that it is a new one, whose
// block is still to be made.
func (s *callSet) find(p *callPiece) (c *openCall, opened bool) {
	switch {
	case p.id != "" && p.hasIndex:
		c = s.byBoth(p)
	case p.id != "":
		c = s.byID(p)
	case p.hasIndex:
		c = s.byIndex(p)
	default:
		c = s.byPosition(p)
	}
	if c != nil {
		return c, false
	}
	c = &openCall{id: p.id, index: p.index, indexed: p.hasIndex}
	s.list = append(s.list, c)
	return c, true
}

// last is the newest call that f accepts.
func (s *callSet) last(f func(*openCall) bool) *openCall {
	for i := len(s.list) - 1; i >= 0; i-- {
		if f(s.list[i]) {
			return s.list[i]
		}
	}
	return nil
}

func (s *callSet) byBoth(p *callPiece) *openCall {
	same := func(c *openCall) bool { return c.indexed && c.index == p.index }
	if c := s.last(func(c *openCall) bool { return same(c) && c.id == p.id }); c != nil {
		return c
	}
	if c := s.last(same); c != nil {
		if c.id == "" {
			c.id = p.id
			return c
		}
		// Another id on the same index is another call, unless it only goes on
		// with arguments that are not whole yet (a new id in each piece).
		if p.name == "" && !c.full() {
			return c
		}
		return nil
	}
	if c := s.last(func(c *openCall) bool { return c.id == p.id }); c != nil && (p.name == "" || !c.indexed) {
		if !c.indexed {
			c.index, c.indexed = p.index, true
		}
		return c
	}
	return nil // the index tells calls with one id apart
}

func (s *callSet) byID(p *callPiece) *openCall {
	if c := s.last(func(c *openCall) bool { return c.id == p.id }); c != nil {
		return c
	}
	if c := s.last(func(*openCall) bool { return true }); c != nil && c.id == "" && p.name == "" {
		c.id = p.id
		return c
	}
	return nil
}

func (s *callSet) byIndex(p *callPiece) *openCall {
	c := s.last(func(c *openCall) bool { return c.indexed && c.index == p.index })
	if c == nil && p.name == "" && len(s.list) == 1 && !s.list[0].indexed {
		c = s.list[0]
	}
	if c != nil && another(c, p) {
		return nil
	}
	return c
}

func (s *callSet) byPosition(p *callPiece) *openCall {
	c := s.last(func(*openCall) bool { return true })
	if p.of > 1 {
		if p.pos >= len(s.list) {
			return nil
		}
		if first := s.list[p.pos]; !another(first, p) {
			return first
		}
		return nil
	}
	if c != nil && another(c, p) {
		return nil
	}
	return c
}

// another reports whether a piece without an id begins a new call although it
// has the place of c: it has a name, and c needs nothing more.
func another(c *openCall, p *callPiece) bool {
	return p.name != "" && c.block.call.Name != "" && p.hasArgs() && c.full()
}

// thought keeps encrypted reasoning for the call with that id.
func (s *callSet) thought(id, detail string) {
	if c := s.last(func(c *openCall) bool { return c.id == id }); c != nil {
		c.thought = detail
		return
	}
	if s.thoughts == nil {
		s.thoughts = map[string]string{}
	}
	s.thoughts[id] = detail
}

// pending gives a new call the reasoning that came before it.
func (s *callSet) pending(c *openCall) {
	if d, ok := s.thoughts[c.id]; ok {
		c.thought = d
		delete(s.thoughts, c.id)
	}
}

// extraSet gathers unknown fields; of a repeated one the last value counts.
type extraSet struct {
	names  []string
	values []string
}

func (e *extraSet) add(fields []namedField) {
	for _, f := range fields {
		at := -1
		for i, n := range e.names {
			if n == string(f.name) {
				at = i
			}
		}
		if at < 0 {
			e.names = append(e.names, string(f.name))
			e.values = append(e.values, string(f.value))
			continue
		}
		e.values[at] = string(f.value)
	}
}

// object is the fields as a JSON object, byte for byte; nil if there are none.
func (e *extraSet) object() json.RawMessage {
	if len(e.names) == 0 {
		return nil
	}
	b := []byte{'{'}
	for i, name := range e.names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(appendString(b, name), ':'), e.values[i]...)
	}
	return append(b, '}')
}

// detailSet gathers reasoning details in their order. Text arrives in pieces:
// those are joined, everything else stays byte for byte.
type detailSet struct {
	list []json.RawMessage

	// The last detail, while its text may go on: its newest piece, the name of
	// its text and the inside of all of it.
	open json.RawMessage
	name string
	text []byte
}

func (d *detailSet) add(raw []byte) {
	elements(raw, func(item []byte) bool {
		if isObject(item) && !d.join(item) {
			d.flush()
			d.begin(item)
		}
		return true
	})
}

// begin takes the first piece of a detail.
func (d *detailSet) begin(item []byte) {
	name := detailText(item)
	in, ok := inside(field(item, name))
	if !ok || !isNull(field(item, "signature")) { // a signature closes it
		d.list = append(d.list, clone(item))
		return
	}
	d.open, d.name, d.text = clone(item), name, append([]byte(nil), in...)
}

// join takes a piece that goes on with the open detail.
func (d *detailSet) join(item []byte) bool {
	if d.open == nil || detailText(item) != d.name || !isNull(field(item, "signature")) ||
		string(field(d.open, "type")) != string(field(item, "type")) ||
		string(field(d.open, "index")) != string(field(item, "index")) {
		return false
	}
	in, ok := inside(field(item, d.name))
	if !ok {
		return false
	}
	d.open = append(d.open[:0], item...)
	d.text = append(d.text, in...)
	return true
}

// flush closes the open detail.
func (d *detailSet) flush() {
	if d.open != nil {
		d.list = append(d.list, withText(d.open, d.name, d.text))
		d.open = nil
	}
}

// detailText is the name of a detail's text, "" if it has none.
func detailText(item []byte) string {
	switch str(field(item, "type")) {
	case "reasoning.text":
		return "text"
	case "reasoning.summary":
		return "summary"
	}
	return ""
}

// withText is item with another text, which is the inside of a JSON string.
func withText(item []byte, name string, text []byte) json.RawMessage {
	out := []byte{'{'}
	p := parser{b: item}
	for ok := p.enter('{'); ok; ok = p.more('}') {
		key := p.key()
		value := p.raw()
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(appendString(out, string(key)), ':')
		if string(key) == name {
			out = append(append(append(out, '"'), text...), '"')
			continue
		}
		out = append(out, value...)
	}
	return append(out, '}')
}
