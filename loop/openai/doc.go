// Package openai is a [loop.Model] for every endpoint that speaks one of
// OpenAI's two wires: Chat Completions and Responses.
//
//	model, err := openai.New(openai.Config{
//		BaseURL: "http://localhost:11434/v1", // Ollama
//		Info:    loop.ModelInfo{ID: "qwen3"},
//	})
//
// The transport and the authentication are openai-go's; the stream is read
// here, because the standard reader takes a cut stream for a success, glues
// parallel calls together and costs more than ten times as much a chunk.
//
// What differs between endpoints is in [Compat]. A profile is chosen by the
// base URL or the provider's name; single fields can be set over it.
//
// Three rules hold for every endpoint. An answer is complete only after its
// end was seen: otherwise the update is an error of class "stream_truncated".
// Arguments of a tool call are whole JSON or the call says why not
// (ToolCall.Incomplete). And nothing that a provider sends, or fails to send,
// makes the sequence of updates end without exactly one UpdateDone or
// UpdateError.
package openai
