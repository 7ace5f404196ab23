package tools

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/pi-worker/pi-worker/loop"
)

func TestCallPatternsMatchNamesAndArguments(t *testing.T) {
	c, err := ParseCalls("bash(rm *)", "bash(git push*)", "write(*.env)", "files_*")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name, args string
		want       bool
	}{
		{"bash", `{"command":"rm -r build"}`, true},
		{"bash", `{"command":"cd /tmp && rm x"}`, true},
		{"bash", `{"command":"echo $(rm x)"}`, true},
		{"bash", `{"command":"ls\nrm x"}`, true},
		{"bash", `{"command":"ls rm"}`, false},
		{"bash", `{"command":"git status; git push origin"}`, true},
		{"bash", `broken`, true},
		{"write", `{"path":"a/.env","content":"x"}`, true},
		{"write", `{"path":"a.txt","content":"x; .env"}`, true},
		{"write", `{"path":"a.txt","content":"x"}`, false},
		{"files_delete", `{}`, true},
		{"read", `{"path":"x.env"}`, false},
	} {
		if got := c.Match(loop.Call{Name: x.name, Args: json.RawMessage(x.args)}); got != x.want {
			t.Errorf("%s %s: %v, want %v", x.name, x.args, got, x.want)
		}
	}
	if (Calls{}).Match(loop.Call{Name: "bash"}) {
		t.Error("no pattern matches something")
	}
	for _, bad := range []string{"", "(x)", "bash(x"} {
		if _, err := ParseCalls(bad); !errors.Is(err, ErrPattern) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
