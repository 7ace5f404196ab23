package loop_test

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/pi-worker/pi-worker/loop"
)

// A session's log, as it is stored: one event a line.
const exampleLog = `{"type":"agent_start"}
{"type":"turn_start"}
{"type":"message_start","message":{"role":"user"}}
{"type":"message_end","message":{"role":"user","content":"How are you?"}}
{"type":"message_start","message":{"role":"assistant","api":"openai-completions","provider":"openai","model":"m"}}
{"type":"message_update","assistantMessageEvent":{"type":"text_start","contentIndex":0}}
{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"I am "}}
{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"fi"}}`

func ExampleFold() {
	transcript, err := loop.Fold(func(yield func(loop.Event, error) bool) {
		for lines := bufio.NewScanner(strings.NewReader(exampleLog)); lines.Scan(); {
			if !yield(loop.ParseWire(lines.Bytes())) {
				return
			}
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("finished messages:", len(transcript.Messages()))
	if open := transcript.Open(); open != nil {
		fmt.Println("half an answer:", open.Partial.Content[0].(*loop.Text).Text)
	}
	// Output:
	// finished messages: 1
	// half an answer: I am fi
}

func ExampleExpander() {
	var x loop.Expander
	for lines := bufio.NewScanner(strings.NewReader(exampleLog)); lines.Scan(); {
		ev, err := loop.ParseWire(lines.Bytes())
		if err != nil {
			fmt.Println(err)
			return
		}
		full, err := x.Expand(ev)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, ev := range full {
			switch ev := ev.(type) {
			case *loop.MessageStart:
				b, _ := loop.MarshalMessage(ev.Message)
				fmt.Printf("%s\n", b)
			case *loop.MessageUpdate:
				for _, block := range ev.Partial.Content {
					fmt.Printf("%s: %q\n", ev.Update.Type, block.(*loop.Text).Text)
				}
			}
		}
	}
	// Output:
	// {"role":"user","content":"How are you?"}
	// {"role":"assistant","api":"openai-completions","provider":"openai","model":"m"}
	// text_start: ""
	// text_delta: "I am "
	// text_delta: "I am fi"
}
