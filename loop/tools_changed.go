package loop

// ToolsChanged says that tools of others, which the run's agent may use, have
// come or gone. What the model was offered stays as it is until the next run; a
// call of a tool that is away is an error result.
type ToolsChanged struct {
	Source  string   // "remote", or "mcp:" and the server's name
	Added   []string // names
	Removed []string // names, or patterns that no tool matches
	Reason  string   // for people; "" none
}

func (*ToolsChanged) EventType() string { return "tools_changed" }

func (e *ToolsChanged) append(dst []byte) []byte {
	dst = appendString(append(dst, `{"type":"tools_changed","source":`...), e.Source)
	dst = appendNames(dst, `,"added":[`, e.Added)
	dst = appendNames(dst, `,"removed":[`, e.Removed)
	return stringField(dst, `,"reason":`, e.Reason)
}

func appendNames(dst []byte, head string, names []string) []byte {
	if len(names) == 0 {
		return dst
	}
	dst = append(dst, head...)
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, name)
	}
	return append(dst, ']')
}

func (s *scanner) toolsChanged() Event {
	e := new(ToolsChanged)
	s.members(func(key string) bool {
		switch key {
		case "source":
			e.Source = s.string()
		case "added":
			e.Added = s.names()
		case "removed":
			e.Removed = s.names()
		case "reason":
			e.Reason = s.string()
		default:
			return false
		}
		return true
	})
	return e
}

func (s *scanner) names() (out []string) {
	for s.open('['); s.next(']'); {
		out = append(out, s.string())
	}
	return out
}
