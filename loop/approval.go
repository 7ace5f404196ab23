package loop

import "encoding/json"

// ApprovalRequested says that a call waits until somebody allows or refuses
// it. It comes after the call's tool_execution_start.
type ApprovalRequested struct {
	ToolCallID, ToolName string
	Args                 json.RawMessage // as the tool would get them
	Key                  string          // names the call for the answer, see [Call]
	Policy               string          // what happens at the deadline: "wait" (there is none), "deny_after", "halt_after"
	Deadline             int64           // Unix milliseconds, 0 none
}

// ApprovalAnswer is how a request for approval ended.
type ApprovalAnswer string

const (
	Approved ApprovalAnswer = "approved"
	Denied   ApprovalAnswer = "denied"
	// TimedOut: nobody answered in time. It is nobody's refusal.
	TimedOut ApprovalAnswer = "timed_out"
	// Withdrawn: the run ended before anybody answered.
	Withdrawn ApprovalAnswer = "withdrawn"
)

// ApprovalAnswered ends what ApprovalRequested began, once.
type ApprovalAnswered struct {
	ToolCallID, ToolName string
	Key                  string
	Answer               ApprovalAnswer
	By                   string // who answered, as they call themselves; "" nobody, or unknown
	Reason               string
}

func (*ApprovalRequested) EventType() string { return "approval_requested" }
func (*ApprovalAnswered) EventType() string  { return "approval_answered" }

func (e *ApprovalRequested) append(dst []byte) []byte {
	dst = appendArgs(appendToolHead(dst, `{"type":"approval_requested"`, e.ToolCallID, e.ToolName), e.Args)
	dst = stringField(dst, `,"key":`, e.Key)
	dst = stringField(dst, `,"policy":`, e.Policy)
	if e.Deadline != 0 {
		dst = intField(dst, `,"deadline":`, e.Deadline)
	}
	return dst
}

func (e *ApprovalAnswered) append(dst []byte) []byte {
	dst = appendToolHead(dst, `{"type":"approval_answered"`, e.ToolCallID, e.ToolName)
	dst = stringField(dst, `,"key":`, e.Key)
	dst = appendString(append(dst, `,"answer":`...), string(e.Answer))
	dst = stringField(dst, `,"by":`, e.By)
	return stringField(dst, `,"reason":`, e.Reason)
}

func (s *scanner) approvalRequested() Event {
	e := new(ApprovalRequested)
	s.members(func(key string) bool {
		switch key {
		case "toolCallId":
			e.ToolCallID = s.string()
		case "toolName":
			e.ToolName = s.string()
		case "args":
			e.Args = s.raw()
		case "key":
			e.Key = s.string()
		case "policy":
			e.Policy = s.string()
		case "deadline":
			e.Deadline = s.int()
		default:
			return false
		}
		return true
	})
	return e
}

func (s *scanner) approvalAnswered() Event {
	e := new(ApprovalAnswered)
	s.members(func(key string) bool {
		switch key {
		case "toolCallId":
			e.ToolCallID = s.string()
		case "toolName":
			e.ToolName = s.string()
		case "key":
			e.Key = s.string()
		case "answer":
			e.Answer = ApprovalAnswer(s.string())
		case "by":
			e.By = s.string()
		case "reason":
			e.Reason = s.string()
		default:
			return false
		}
		return true
	})
	return e
}

// Approval is what the events say of a call that needs one.
type Approval struct {
	Request *ApprovalRequested
	Answer  *ApprovalAnswered // nil while it waits
}

// holds says that the call cannot have begun.
func (a *Approval) holds() bool { return a != nil && (a.Answer == nil || a.Answer.Answer != Approved) }

func (r *runState) approvalRequested(e *ApprovalRequested) {
	i := r.position(e.ToolCallID, func(i int) bool { return r.ended[i] == nil && r.approvals[i] == nil })
	if i < 0 {
		return
	}
	if r.approvals == nil {
		r.approvals = make(map[int]*Approval)
	}
	r.approvals[i] = &Approval{Request: e}
}

func (r *runState) approvalAnswered(e *ApprovalAnswered) {
	for i, a := range r.approvals {
		if a.Request.Key == e.Key && a.Request.ToolCallID == e.ToolCallID && a.Answer == nil {
			r.approvals[i] = &Approval{Request: a.Request, Answer: e}
			return
		}
	}
}
