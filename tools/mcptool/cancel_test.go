package mcptool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/tools/mcptool"
)

// message is what a test wants to know of a JSON-RPC message.
type message struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		RequestID json.RawMessage
	}
}

// Over HTTP a cancelled call reaches the server as a notification that names its
// request; the session and the other calls go on.
func TestCancelOverHTTPIsANotificationAndLeavesTheServerAlive(t *testing.T) {
	release := make(chan struct{})
	s := newServer(t.TempDir(), release)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	sent := make(chan message, 1000)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(body, &m) == nil {
			sent <- m
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	t.Cleanup(func() { close(release) })
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	var changes atomic.Int32
	set := open(t, mcptool.Config{
		Servers: []mcptool.Server{{Name: "srv", URL: web.URL}},
		Changed: func(string, error) { changes.Add(1) },
	})

	list, _ := set.Tools("srv_hang")
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := list[0].Execute(ctx, loop.Call{}, func(loop.ToolResult) { cancel(why) }) // it runs
	if !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
	var hanging json.RawMessage
	for timeout := time.After(time.Minute); ; {
		select {
		case m := <-sent:
			if m.Method == "tools/call" && m.Params.Name == "hang" {
				hanging = m.ID
			}
			if m.Method != "notifications/cancelled" {
				continue
			}
			if hanging == nil || !bytes.Equal(m.Params.RequestID, hanging) {
				t.Errorf("cancelled is %s, the call was %s", m.Params.RequestID, hanging)
			}
		case <-timeout:
			t.Fatal("the server gets no notification")
		}
		break
	}
	if res := call(t, set, "srv_echo", `{"text":"still"}`); !strings.HasPrefix(text(res), "still") {
		t.Errorf("afterwards: %q", text(res))
	}
	if n := changes.Load(); n != 1 {
		t.Errorf("the server came or went %d times, want only its start", n)
	}
}
