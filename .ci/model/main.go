// Command model is the scripted model as a server of its own, for containers:
// it speaks both OpenAI APIs on port 8080. What the last user message begins
// with decides the answer:
//
//	slow …   40 words, one each 200 ms
//	leak …   an error that says the API key again
//	else     "scripted: " and the message
package main

import (
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/pi-worker/pi-worker/loop/looptest"
)

func main() {
	script := looptest.NewScript()
	script.Otherwise(answer)
	script.OnRequest(func(*looptest.Request) { script.Forget() })
	target := &url.URL{Scheme: "http", Host: script.Addr()}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1, // each piece at once
	}
	addr := ":8080"
	if len(os.Args) > 1 {
		addr = os.Args[1]
	}
	log.Print("model is ready on " + addr)
	log.Fatal(http.ListenAndServe(addr, proxy))
}

func answer(r *looptest.Request) looptest.Answer {
	said := strings.TrimSpace(r.LastUser())
	switch {
	case strings.HasPrefix(said, "slow"):
		return looptest.Reply{
			Text: strings.TrimSpace(strings.Repeat("word ", 40)), ChunkSize: 5, ChunkDelay: 200 * time.Millisecond,
		}
	case strings.HasPrefix(said, "leak"):
		return looptest.Reply{Status: http.StatusUnauthorized, Text: "no such key: " + r.Header.Get("Authorization")}
	}
	return looptest.Text("scripted: " + said)
}
