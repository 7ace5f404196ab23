package openai

// chunkFields are the parts of a chunk that matter, as they are written. One
// pass over the chunk finds them all.
type chunkFields struct {
	id, model, usage, err, object, message []byte
	choice                                 choiceFields // the one with index 0
	found                                  bool         // there is one
}

type choiceFields struct {
	delta                deltaFields
	reason, usage, index []byte
	whole                *deltaFields // a message instead of a delta
}

// deltaFields are the parts of a delta that matter.
type deltaFields struct {
	present                                    bool
	content, refusal, calls, function, details []byte
	reasoning                                  [3][]byte
}

// reasoningFields in the order in which they count.
var reasoningFields = [3]string{"reasoning_content", "reasoning", "reasoning_text"}

func (f *chunkFields) parse(data []byte) error {
	*f = chunkFields{}
	p := parser{b: data}
	if p.peek() != '{' {
		p.skip() // null, or something that is not a chunk
		if !p.done() {
			return errJSON
		}
		return nil
	}
	for ok := p.enter('{'); ok; ok = p.more('}') {
		switch string(p.key()) {
		case "id":
			f.id = p.raw()
		case "model":
			f.model = p.raw()
		case "choices":
			f.choices(&p)
		case "usage":
			f.usage = p.raw()
		case "error":
			f.err = p.raw()
		case "object":
			f.object = p.raw()
		case "message":
			f.message = p.raw()
		default:
			p.skip()
		}
	}
	if !p.done() {
		return errJSON
	}
	return nil
}

func (f *chunkFields) choices(p *parser) {
	if p.peek() != '[' {
		p.skip()
		return
	}
	for ok := p.enter('['); ok; ok = p.more(']') {
		if f.found || p.peek() != '{' {
			p.skip()
			continue
		}
		f.choice.parse(p)
		if f.found = integer(f.choice.index) == 0; !f.found {
			f.choice = choiceFields{}
		}
	}
}

func (c *choiceFields) parse(p *parser) {
	for ok := p.enter('{'); ok; ok = p.more('}') {
		switch string(p.key()) {
		case "delta":
			c.delta.parse(p)
		case "message":
			c.whole = &deltaFields{}
			c.whole.parse(p)
		case "finish_reason":
			c.reason = p.raw()
		case "usage":
			c.usage = p.raw()
		case "index":
			c.index = p.raw()
		default:
			p.skip()
		}
	}
}

func (d *deltaFields) parse(p *parser) {
	if p.peek() != '{' {
		p.skip()
		return
	}
	d.present = true
	for ok := p.enter('{'); ok; ok = p.more('}') {
		switch string(p.key()) {
		case "content":
			d.content = p.raw()
		case "refusal":
			d.refusal = p.raw()
		case "reasoning_content":
			d.reasoning[0] = p.raw()
		case "reasoning":
			d.reasoning[1] = p.raw()
		case "reasoning_text":
			d.reasoning[2] = p.raw()
		case "tool_calls":
			d.calls = p.raw()
		case "function_call":
			d.function = p.raw()
		case "reasoning_details":
			d.details = p.raw()
		default:
			p.skip()
		}
	}
}
