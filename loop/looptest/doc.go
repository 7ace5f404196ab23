// Package looptest has what tests and demonstrations of the agent loop need:
// [Script], an OpenAI-compatible model server that says what it was told to
// say, [Model], the same without HTTP (for synctest bubbles), and [Collect].
//
//	script := looptest.NewScript(
//		looptest.Reply{Calls: []looptest.Call{{Name: "read", Args: `{"path":"a"}`}}},
//		looptest.Reply{Text: "The file is empty."},
//	)
//	defer script.Close()
//	model, err := openai.New(openai.Config{BaseURL: script.BaseURL(), APIKey: "test"})
//
// The package itself doesn't import testing, so that a command may use it.
// Its tests hold the oracle harness: what pi 0.73.1 really did, replayed
// against this loop.
package looptest
