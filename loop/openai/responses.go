package openai

import "github.com/pi-worker/pi-worker/loop"

func (m *Model) responsesBody(req *loop.Request) []byte { return nil }

type responsesStream struct{ chatStream }

func newResponsesStream(m *Model, out *sink) *responsesStream { return nil }
