package loop

func (e *CompactionEnd) append(dst []byte) []byte {
	dst = appendString(append(dst, `{"type":"compaction_end","reason":`...), string(e.Reason))
	if r := e.Result; r != nil {
		dst = appendString(append(dst, `,"result":{"summary":`...), r.Summary)
		dst = intField(dst, `,"kept":`, int64(r.Kept))
		dst = intField(dst, `,"tokensBefore":`, r.TokensBefore)
		dst = intField(dst, `,"tokensAfter":`, r.TokensAfter)
		dst = append(timeField(dst, r.Timestamp), '}')
	}
	dst = boolField(dst, `,"aborted":`, e.Aborted)
	dst = boolField(dst, `,"willRetry":`, e.WillRetry)
	dst = stringField(dst, `,"errorMessage":`, e.ErrorMessage)
	if e.Usage != (Usage{}) {
		dst = e.Usage.append(append(dst, `,"usage":`...))
	}
	return dst
}

func (s *scanner) compactionStart() Event {
	e := new(CompactionStart)
	s.members(func(key string) bool {
		if key != "reason" {
			return false
		}
		e.Reason = CompactionReason(s.string())
		return true
	})
	return e
}

func (s *scanner) compactionEnd() Event {
	e := new(CompactionEnd)
	s.members(func(key string) bool {
		switch key {
		case "reason":
			e.Reason = CompactionReason(s.string())
		case "result":
			e.Result = s.compacted()
		case "aborted":
			e.Aborted = s.bool()
		case "willRetry":
			e.WillRetry = s.bool()
		case "errorMessage":
			e.ErrorMessage = s.string()
		case "usage":
			s.usage(&e.Usage)
		default:
			return false
		}
		return true
	})
	return e
}

func (s *scanner) compacted() *Compacted {
	if s.null() {
		return nil
	}
	c := new(Compacted)
	s.members(func(key string) bool {
		switch key {
		case "summary":
			c.Summary = s.string()
		case "kept":
			c.Kept = int(s.int())
		case "tokensBefore":
			c.TokensBefore = s.int()
		case "tokensAfter":
			c.TokensAfter = s.int()
		case "timestamp":
			c.Timestamp = s.int()
		default:
			return false
		}
		return true
	})
	s.within("result")
	return c
}
