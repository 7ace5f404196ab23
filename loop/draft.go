package loop

import (
	"slices"
	"unsafe"
)

// maxDraftBlocks bounds how many blocks a streamed answer may have, so that a
// wrong contentIndex cannot make the fold allocate without end.
const maxDraftBlocks = 4096

// draft is an answer that is being streamed: deltas in, message so far out.
// Each delta costs its own length.
type draft struct {
	message AssistantMessage
	blocks  []draftBlock
}

// draftBlock holds what a block of the message grows from.
type draftBlock struct {
	// text only grows at its end: strings that share its memory stay valid.
	text []byte
	args *ArgumentsPreview
}

func newDraft(start *AssistantMessage) *draft {
	d := &draft{message: *start}
	d.message.Content = []Block{}
	return d
}

// update folds one update. What it cannot place is ignored: a log whose
// ephemeral records have expired has holes.
func (d *draft) update(u *Update) {
	switch u.Type {
	case UpdateTextStart, UpdateTextDelta, UpdateTextEnd:
		if t, ok := d.block(u.ContentIndex, func() Block { return new(Text) }).(*Text); ok {
			t.Text = d.grow(u, t.Text)
		}
	case UpdateThinkingStart, UpdateThinkingDelta, UpdateThinkingEnd:
		if t, ok := d.block(u.ContentIndex, func() Block { return new(Thinking) }).(*Thinking); ok {
			t.Thinking = d.grow(u, t.Thinking)
		}
	case UpdateToolCallStart, UpdateToolCallDelta, UpdateToolCallEnd:
		c, ok := d.block(u.ContentIndex, func() Block { return &ToolCall{Arguments: emptyObject} }).(*ToolCall)
		if ok {
			d.updateCall(u, c)
		}
	}
}

var emptyObject = []byte("{}")

// block returns the block at index i, made with fresh if it is a new one; nil
// if there can be none.
func (d *draft) block(i int, fresh func() Block) Block {
	if i < 0 || i >= maxDraftBlocks {
		return nil
	}
	for len(d.blocks) < i {
		d.blocks = append(d.blocks, draftBlock{})
		d.message.Content = append(d.message.Content, new(Text)) // its start is lost
	}
	if len(d.blocks) == i {
		d.blocks = append(d.blocks, draftBlock{})
		d.message.Content = append(d.message.Content, fresh())
	}
	return d.message.Content[i]
}

// grow returns a block's text after the update.
func (d *draft) grow(u *Update, now string) string {
	b := &d.blocks[u.ContentIndex]
	switch {
	case u.Delta != "":
		b.text = append(b.text, u.Delta...)
	case u.Revised || u.Content != "" && u.Content != now:
		b.text = []byte(u.Content)
	default:
		return now
	}
	return unsafe.String(unsafe.SliceData(b.text), len(b.text))
}

func (d *draft) updateCall(u *Update, c *ToolCall) {
	b := &d.blocks[u.ContentIndex]
	if b.args == nil {
		b.args = new(ArgumentsPreview)
	}
	if u.Delta != "" {
		b.args.Append(u.Delta)
		c.Arguments = b.args.JSON()
	}
	if u.ToolCall == nil {
		return
	}
	args := c.Arguments
	*c = *u.ToolCall
	if c.Arguments == nil {
		c.Arguments = args
	}
}

// complete fills in what the wire leaves out of a block's end.
func (d *draft) complete(u *Update) {
	if uint(u.ContentIndex) >= uint(len(d.message.Content)) {
		return
	}
	switch b := d.message.Content[u.ContentIndex].(type) {
	case *Text:
		if u.Type == UpdateTextEnd {
			u.Content = b.Text
		}
	case *Thinking:
		if u.Type == UpdateThinkingEnd {
			u.Content = b.Thinking
		}
	case *ToolCall:
		if u.Type == UpdateToolCallEnd {
			c := *b
			c.Arguments = slices.Clone(b.Arguments)
			u.ToolCall = &c
		}
	}
}

// snapshot returns a copy of the message that later updates do not change.
func (d *draft) snapshot() *AssistantMessage {
	m := d.message
	m.Content = make([]Block, len(d.message.Content))
	for i, b := range d.message.Content {
		m.Content[i] = cloneBlock(b)
	}
	return &m
}

func (d *draft) clone() *draft {
	c := &draft{message: *d.snapshot(), blocks: slices.Clone(d.blocks)}
	for i := range c.blocks {
		b := &c.blocks[i]
		b.text = slices.Clip(b.text) // both go on in memory of their own
		if b.args != nil {
			b.args = b.args.clone()
		}
	}
	return c
}

// cloneBlock copies a block of a draft.
func cloneBlock(b Block) Block {
	switch b := b.(type) {
	case *Text:
		c := *b
		return &c
	case *Thinking:
		c := *b
		return &c
	case *ToolCall:
		c := *b
		c.Arguments = slices.Clone(b.Arguments)
		return &c
	}
	return b
}
