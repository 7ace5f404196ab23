package subjects_test

import (
	"fmt"

	"github.com/pi-worker/pi-worker/subjects"
)

func Example() {
	names := subjects.Names{Prefix: "acme"}
	fmt.Println(names.Input("s1", subjects.KindPrompt))
	fmt.Println(names.Events("s1"), "in", names.EventsStream())
	session, kind, err := names.ParseInput("acme.s1.steer")
	fmt.Println(session, kind, err)
	_, err = subjects.ParseSession("a.b")
	fmt.Println(err)
	// Output:
	// acme.s1.prompt
	// acme.s1.events in ACME_EVENTS
	// s1 steer <nil>
	// subjects: session id must be 1 to 64 of A-Z a-z 0-9 _ -: "a.b"
}
