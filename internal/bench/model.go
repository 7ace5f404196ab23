package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// answer is what a prompt's text asks the scripted model for.
type answer struct {
	tokens int           // of text, in each turn
	turns  int           // all but the last one call the tool
	pace   time.Duration // between two tokens; 0: as fast as it can
	first  time.Duration // before the first
	stamp  bool          // tokens are the time at which they were sent
}

// prompt is the text that makes the model answer so.
func (a answer) prompt() string {
	return fmt.Sprintf("bench:%d:%d:%d:%d:%t:", a.tokens, a.turns, a.pace.Microseconds(), a.first.Microseconds(), a.stamp)
}

// parseAnswer finds the last prompt in a request.
func parseAnswer(body []byte) (a answer, done int, ok bool) {
	i := bytes.LastIndex(body, []byte("bench:"))
	if i < 0 {
		return answer{}, 0, false
	}
	f := strings.SplitN(string(body[i:min(len(body), i+80)]), ":", 7)
	if len(f) < 7 {
		return answer{}, 0, false
	}
	n := make([]int, 4)
	for k := range n {
		n[k], _ = strconv.Atoi(f[k+1])
	}
	a = answer{n[0], n[1], time.Duration(n[2]) * time.Microsecond, time.Duration(n[3]) * time.Microsecond, f[5] == "true"}
	return a, bytes.Count(body[i:], []byte(`"role":"tool"`)), true
}

// token is what the model says again and again: 5 bytes, one word.
const token = "word "

// content is how many bytes of text an answer has.
func (a answer) content() int { return a.tokens * a.turns * len(token) }

const chunkHead = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":[{"index":0,"delta":`

// burst is how much an unpaced answer is written at a time, in bytes: as much
// as arrives together when the network is faster than the reader.
const burst = 4 << 10

// modelServer is a Chat Completions endpoint that does nothing but stream.
type modelServer struct {
	mu      sync.Mutex // guards busy and answers
	busy    time.Duration
	answers int
}

// modelMain is the model's process.
func modelMain() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	m := &modelServer{}
	srv := &http.Server{Handler: m}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) })
	defer wg.Wait()
	defer srv.Close()
	return serveRole("http://"+ln.Addr().String()+"/v1", func(_ string, st *stats) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		st.Busy, st.Answers = m.busy, m.answers
		m.busy, m.answers = 0, 0
		return nil
	})
}

// ServeHTTP implements http.Handler.
func (m *modelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	a, done, ok := parseAnswer(body)
	if !ok {
		http.Error(w, "the request has no bench prompt", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	time.Sleep(a.first)
	begun := time.Now()
	a.stream(w, r, done)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy += time.Since(begun)
	m.answers++
}

func (a answer) stream(w http.ResponseWriter, r *http.Request, done int) {
	flush := w.(http.Flusher).Flush
	const tail = `,"finish_reason":null}]}` + "\n\n"
	buf := append([]byte(nil), chunkHead+`{"role":"assistant","content":""}`+tail...)
	begun := time.Now()
	for i := range a.tokens {
		if a.pace > 0 {
			wait := time.NewTimer(time.Until(begun.Add(time.Duration(i) * a.pace)))
			select {
			case <-wait.C:
			case <-r.Context().Done():
				return
			}
		}
		buf = append(buf, chunkHead+`{"content":"`...)
		if a.stamp {
			buf = append(strconv.AppendInt(buf, time.Now().UnixNano(), 10), ' ')
		} else {
			buf = append(buf, token...)
		}
		buf = append(buf, `"}`+tail...)
		if a.pace > 0 || len(buf) >= burst {
			if _, err := w.Write(buf); err != nil {
				return
			}
			flush()
			buf = buf[:0]
		}
	}
	reason := "stop"
	if done+1 < a.turns {
		reason = "tool_calls"
		buf = fmt.Appendf(buf, `%s{"tool_calls":[{"index":0,"id":"call_%d","type":"function","function":{"name":"step","arguments":"{\"n\":%d}"}}]}%s`,
			chunkHead, done, done, tail)
	}
	buf = append(buf, chunkHead+`{},"finish_reason":"`+reason+`"}],"usage":{"prompt_tokens":10,"completion_tokens":10,"total_tokens":20}}`+"\n\ndata: [DONE]\n\n"...)
	_, _ = w.Write(buf)
}
