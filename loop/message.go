package loop

import "encoding/json"

// Roles of the messages that every model understands. Any other role is a
// [CustomMessage].
const (
	RoleUser       = "user"
	RoleAssistant  = "assistant"
	RoleToolResult = "toolResult"
)

// Message is one entry of a transcript: *[UserMessage], *[AssistantMessage],
// *[ToolResultMessage] or *[CustomMessage]. Messages are immutable once they
// were emitted in a message_end event.
type Message interface {
	// Role is the JSON "role".
	Role() string
	isMessage()
}

// UserMessage is what a person or a service said.
type UserMessage struct {
	Content []Block // Text and Image
	// ContentString says that the JSON "content" was a bare string, which is
	// then the only Text in Content; it is written back the same way.
	ContentString bool
	Timestamp     int64 // Unix milliseconds; 0 is left out of the JSON
	// Other holds members that this version does not know, as a JSON object;
	// they are kept and written back. nil if there are none.
	Other json.RawMessage
}

// AssistantMessage is one answer of a model.
type AssistantMessage struct {
	Content       []Block // Text, Thinking and ToolCall
	API           string  // "openai-completions", "openai-responses"
	Provider      string
	Model         string
	Usage         Usage
	StopReason    StopReason
	ErrorMessage  string // only with StopError and StopAborted
	ResponseID    string // the provider's id of the answer, "" unknown
	ResponseModel string // the model that answered, only if not Model
	Timestamp     int64  // Unix milliseconds; 0 is left out of the JSON
	// Other holds members that this version does not know, as a JSON object;
	// they are kept and written back. nil if there are none.
	Other json.RawMessage
	// Err is the typed cause of StopError, never in the JSON.
	Err error
}

// ToolResultMessage answers one tool call.
type ToolResultMessage struct {
	ToolCallID string
	ToolName   string
	Content    []Block // Text and Image
	Details    json.RawMessage
	IsError    bool
	Timestamp  int64
	Other      json.RawMessage // members that this version does not know, see [UserMessage]
}

// CustomMessage is a message whose role the loop does not know. It lives in
// the transcript and reaches the model only through Config.ConvertToLLM.
type CustomMessage struct {
	CustomRole string
	Raw        json.RawMessage // the whole message, role included
}

func (*UserMessage) Role() string       { return RoleUser }
func (*AssistantMessage) Role() string  { return RoleAssistant }
func (*ToolResultMessage) Role() string { return RoleToolResult }
func (m *CustomMessage) Role() string   { return m.CustomRole }

func (*UserMessage) isMessage()       {}
func (*AssistantMessage) isMessage()  {}
func (*ToolResultMessage) isMessage() {}
func (*CustomMessage) isMessage()     {}

// Block is one piece of a message's content: *[Text], *[Thinking], *[Image],
// *[ToolCall] or *[UnknownBlock].
type Block interface {
	// BlockType is the JSON "type".
	BlockType() string
	isBlock()
}

// Text is plain text.
type Text struct {
	Text string
	// Signature is the provider's opaque mark (JSON "textSignature").
	Signature string
	Other     json.RawMessage // members that this version does not know, see [UserMessage]
}

// Thinking is a model's reasoning.
type Thinking struct {
	Thinking string
	// Signature (JSON "thinkingSignature") is what the provider needs to get
	// the reasoning back: the field's name in Chat Completions, the reasoning
	// item as JSON in Responses.
	Signature string
	Redacted  bool
	Other     json.RawMessage // members that this version does not know, see [UserMessage]
}

// Image is a picture, base64 in Data.
type Image struct {
	Data     string
	MIMEType string
	Other    json.RawMessage // members that this version does not know, see [UserMessage]
}

// ToolCall is a model's wish to run a tool.
type ToolCall struct {
	ID   string
	Name string
	// Arguments is whole JSON, an object unless the model erred.
	Arguments json.RawMessage
	// ThoughtSignature is the provider's opaque reasoning for this call.
	ThoughtSignature string
	// Extra holds the provider's own fields of the call, a JSON object, sent
	// back byte for byte; nil if there are none.
	Extra json.RawMessage
	// Incomplete says why the call must not be run (cut or malformed
	// arguments); "" for a good call. JSON "incomplete".
	Incomplete string
	Other      json.RawMessage // members that this version does not know, see [UserMessage]
}

// UnknownBlock is kept and passed on.
type UnknownBlock struct {
	Type string
	Raw  json.RawMessage
}

func (*Text) BlockType() string           { return "text" }
func (*Thinking) BlockType() string       { return "thinking" }
func (*Image) BlockType() string          { return "image" }
func (*ToolCall) BlockType() string       { return "toolCall" }
func (b *UnknownBlock) BlockType() string { return b.Type }

func (*Text) isBlock()         {}
func (*Thinking) isBlock()     {}
func (*Image) isBlock()        {}
func (*ToolCall) isBlock()     {}
func (*UnknownBlock) isBlock() {}

// StopReason says why an answer ended.
type StopReason string

const (
	StopStop    StopReason = "stop"
	StopLength  StopReason = "length"
	StopToolUse StopReason = "toolUse"
	StopError   StopReason = "error"
	StopAborted StopReason = "aborted"
)

// Usage counts tokens. Input excludes CacheRead and CacheWrite.
type Usage struct {
	Input, Output, CacheRead, CacheWrite int64
	TotalTokens                          int64
	Reasoning                            int64 // part of Output; left out of the JSON when 0
	Cost                                 Cost
	Estimated                            bool // the provider sent no usage; left out of the JSON when false
}

// Cost is US dollars.
type Cost struct {
	Input, Output, CacheRead, CacheWrite, Total float64
	Stated                                      bool // Total is the provider's own figure; left out when false
}

// NewUserText is a user message of one text block.
func NewUserText(text string) *UserMessage {
	return &UserMessage{Content: []Block{&Text{Text: text}}}
}
