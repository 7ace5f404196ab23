package loop

// WorkspaceSaved says that the files of the session's tools, as they are after
// a call that changed them, are kept: whoever resumes from here works on them.
type WorkspaceSaved struct {
	Manifest string // object in AGENT_BLOBS that lists the files
	Files    int64  // links included, folders not
	Bytes    int64  // of all files
	Stored   int64  // bytes of contents that were new
}

// WorkspaceUnsaved says that the files could not be kept, and that the last
// WorkspaceSaved is older than they are.
type WorkspaceUnsaved struct{ ErrorMessage string }

func (*WorkspaceSaved) EventType() string   { return "workspace_saved" }
func (*WorkspaceUnsaved) EventType() string { return "workspace_unsaved" }

func (e *WorkspaceSaved) append(dst []byte) []byte {
	dst = appendString(append(dst, `{"type":"workspace_saved","manifest":`...), e.Manifest)
	dst = intField(dst, `,"files":`, e.Files)
	dst = intField(dst, `,"bytes":`, e.Bytes)
	return intField(dst, `,"stored":`, e.Stored)
}

func (e *WorkspaceUnsaved) append(dst []byte) []byte {
	return appendString(append(dst, `{"type":"workspace_unsaved","errorMessage":`...), e.ErrorMessage)
}

func (s *scanner) workspaceSaved() Event {
	e := new(WorkspaceSaved)
	s.members(func(key string) bool {
		switch key {
		case "manifest":
			e.Manifest = s.string()
		case "files":
			e.Files = s.int()
		case "bytes":
			e.Bytes = s.int()
		case "stored":
			e.Stored = s.int()
		default:
			return false
		}
		return true
	})
	return e
}

func (s *scanner) workspaceUnsaved() Event {
	e := new(WorkspaceUnsaved)
	s.members(func(key string) bool {
		if key == "errorMessage" {
			e.ErrorMessage = s.string()
			return true
		}
		return false
	})
	return e
}
