package looptest_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/loop/looptest"
)

// TestOracleDoesNotDependOnChunking replays the scenarios with the same bytes
// cut elsewhere: inside lines, escapes and characters. Those that act or wait
// at a place in the stream are left out.
func TestOracleDoesNotDependOnChunking(t *testing.T) {
	if testing.Short() {
		t.Skip("replays the oracle twice more")
	}
	fsys, err := oracleFS()
	if err != nil {
		t.Fatal(err)
	}
	for _, suite := range suites {
		files, err := fs.Glob(fsys, suite.scenarios+"/*.json")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(path.Base(file), ".json")
			for size, label := range map[int]string{7: "small", 1 << 20: "whole"} {
				t.Run(name+"/"+label, func(t *testing.T) {
					t.Parallel()
					var s scenario
					readStrict(t, fsys, file, &s)
					if !movable(&s) {
						t.Skip("it acts at a place in the stream")
					}
					testScenario(t, fsys, file, suite.expected+"/"+name+".json", func(s *scenario) { rechunk(s, size) })
				})
			}
		}
	}
}

func movable(s *scenario) bool {
	if len(s.Actions) > 0 {
		return false
	}
	for _, r := range s.Responses {
		for _, c := range r.Chunks {
			if c.Cut || c.DelayMS > 0 {
				return false
			}
		}
	}
	return true
}

// rechunk sends the same streams in pieces of size bytes.
func rechunk(s *scenario, size int) {
	for _, r := range s.Responses {
		if r.Body != nil || r.Chunks == nil {
			continue
		}
		var all []byte
		for i := range r.Chunks {
			all = append(all, chunkBytes(&r.Chunks[i])...)
		}
		r.Chunks = nil
		for len(all) > 0 {
			n := min(size, len(all))
			piece := base64.StdEncoding.EncodeToString(all[:n])
			r.Chunks = append(r.Chunks, looptest.Chunk{Base64: &piece})
			all = all[n:]
		}
	}
}

// chunkBytes is what the oracle's format says of a chunk.
func chunkBytes(c *looptest.Chunk) string {
	switch {
	case c.Raw != nil:
		return *c.Raw
	case c.Base64 != nil:
		b, _ := base64.StdEncoding.DecodeString(*c.Base64)
		return string(b)
	case c.Done:
		return "data: [DONE]\n\n"
	}
	var data bytes.Buffer
	if c.Data == nil {
		data.WriteString("null")
	} else if err := json.Compact(&data, c.Data); err != nil {
		data.Write(c.Data)
	}
	if c.Event != "" {
		return "event: " + c.Event + "\ndata: " + data.String() + "\n\n"
	}
	return "data: " + data.String() + "\n\n"
}
