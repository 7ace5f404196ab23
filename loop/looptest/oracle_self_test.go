package looptest_test

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
)

// TestHarnessRefusesWhatItDoesNotKnow: an unknown field, hook, rule or action
// is a failure, never a skip.
func TestHarnessRefusesWhatItDoesNotKnow(t *testing.T) {
	const head = `{"name":"x","driver":"loop","mode":"prompt","responses":[],`
	for _, rest := range []string{
		`"hooks":{"onBlueMoon":[]}}`,
		`"compare":{"order":"any"}}`,
		`"compare":{"errorMessage":"similar"}}`,
		`"options":{"parallelism":2}}`,
		`"tools":[{"name":"t","calls":[{"steps":[{"dance":1}]}]}]}`,
		`"tools":[{"name":"t","calls":[{"steps":[],"onAbort":"shrug"}]}]}`,
		`"actions":[{"when":{},"do":"abort"}]}`,
		`"actions":[{"when":{"tool":{"tool":"t","moon":1}},"do":"abort"}]}`,
		`"hooks":{"steering":[{"toss":"x"}]}}`,
		`"divergence":{"kind":"bug"}}`,
	} {
		var s scenario
		if err := strict([]byte(head+rest), &s); err != nil {
			continue
		}
		if s.check() == nil {
			t.Errorf("accepted: %s", rest)
		}
	}
}

// TestHarnessSeesDifferences changes one thing of an expectation after the
// other: each must be noticed.
func TestHarnessSeesDifferences(t *testing.T) {
	fsys, err := oracleFS()
	if err != nil {
		t.Fatal(err)
	}
	const name = "exec_tool_updates_parallel.json"
	b, err := fs.ReadFile(fsys, "expected/"+name)
	if err != nil {
		t.Skip("another oracle")
	}
	var s scenario
	readStrict(t, fsys, "scenarios/"+name, &s)
	load := func(text string) *expectation {
		var e expectation
		if err := strict([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		return &e
	}
	if diffs := compare(&s, load(string(b)), load(string(b))); len(diffs) > 0 {
		t.Fatalf("not equal to itself: %v", diffs)
	}
	for _, change := range [][2]string{
		{`"text": "a1"`, `"text": "a9"`},                               // an update
		{`"tool_execution_end:call_b"`, `"tool_execution_end:call_a"`}, // the trace
		{`"isError": false`, `"isError": true`},
		{`"signalAborted": false`, `"signalAborted": true`},
		{`"steering": 0`, `"steering": 1`},
		{`"outcome": "ok"`, `"outcome": "throw"`},
		{`"messagesBefore": 0`, `"messagesBefore": 1`},
		{`"method": "POST"`, `"method": "PUT"`},
		{`"Bearer test"`, `"Bearer other"`},
		{`"stream": true`, `"stream": true, "top_k": 1`},
		{`"totalTokens": 0`, `"totalTokens": 1`},
	} {
		changed := strings.Replace(string(b), change[0], change[1], 1)
		if changed == string(b) {
			changed = strings.Replace(strings.ReplaceAll(string(b), ": ", ":"), strings.ReplaceAll(change[0], ": ", ":"), change[1], 1)
		}
		if len(compare(&s, load(string(b)), load(changed))) == 0 {
			t.Errorf("%s instead of %s was not noticed", change[1], change[0])
		}
	}
}

// TestInvariantsOfRequests: the strict checker refuses what strict servers do.
func TestInvariantsOfRequests(t *testing.T) {
	for body, ok := range map[string]bool{
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"a"}]},{"role":"tool","tool_call_id":"a"}]}`: true,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"a"}]},{"role":"user","content":"x"}]}`:                                    false,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":""}]},{"role":"tool","tool_call_id":""}]}`:                                 false,
		`{"messages":[{"role":"tool","tool_call_id":"a"}]}`:                                                                                             false,
		`{"messages":[{"role":"assistant","content":null}]}`:                                                                                            false,
		`{"input":[{"type":"function_call","call_id":"a"},{"type":"function_call_output","call_id":"a"}]}`:                                              true,
		`{"input":[{"type":"function_call","call_id":"a"}]}`:                                                                                            false,
		`{"input":[{"type":"function_call_output","call_id":"a"}]}`:                                                                                     false,
		`{}`: false,
	} {
		if err := acceptable(decoded([]byte(body))); (err == nil) != ok {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// TestImprovedExpectationIsOurs: where pi plays one more turn after an abort,
// the expectation without it is what this loop does; a turn that was aborted
// while it was open stays.
func TestImprovedExpectationIsOurs(t *testing.T) {
	fsys, err := zip.NewReader(bytes.NewReader(oracleZip), int64(len(oracleZip)))
	if err != nil {
		t.Fatal(err)
	}
	for name, improved := range map[string]bool{
		"abort_tool_honours_signal":       true,
		"abort_tool_ignores_signal":       true,
		"abort_tool_parallel":             true,
		"abort_at_last_message_end":       true,
		"continue_changes_caller_context": true,
		"abort_mid_text":                  false,
		"abort_at_user_message_end":       false,
	} {
		t.Run(name, func(t *testing.T) {
			var s scenario
			var want expectation
			readStrict(t, fsys, "scenarios/"+name+".json", &s)
			readStrict(t, fsys, "expected/"+name+".json", &want)
			if improve(&want) != improved {
				t.Errorf("improved: %t, want %t", !improved, improved)
			}
			var got *expectation
			synctest.Test(t, func(t *testing.T) { got = replay(t, &s) })
			for _, d := range compare(&s, got, &want) {
				t.Error(d)
			}
		})
	}
}
