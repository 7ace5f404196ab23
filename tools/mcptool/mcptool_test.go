package mcptool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/pi-worker/pi-worker/loop"
	"github.com/pi-worker/pi-worker/tools/mcptool"
)

// serverEnv makes the test binary an MCP server on stdio. Its value is a
// folder, where it notes its starts.
const serverEnv = "MCPTOOL_TEST_SERVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverEnv); dir != "" {
		if err := newServer(dir, nil).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

type in struct {
	Text string `json:"text,omitempty" jsonschema:"any text"`
}

// newServer has one tool for each thing that can happen. Calls that hang end
// with release as well, nil is never: a server that is closed waits for them,
// and a cancellation right before that may be too late.
func newServer(dir string, release <-chan struct{}) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	add := func(name string, run func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, error)) {
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: "does " + name, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: name == "echo"}},
			func(ctx context.Context, req *mcp.CallToolRequest, args in) (*mcp.CallToolResult, any, error) {
				res, err := run(ctx, req, args)
				return res, nil, err
			})
	}
	say := func(text string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	}
	add("echo", func(_ context.Context, req *mcp.CallToolRequest, args in) (*mcp.CallToolResult, error) {
		return say(fmt.Sprint(args.Text, " ", req.Params.Meta["pi-worker/callKey"])), nil
	})
	add("all", func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{
			Content: []mcp.Content{
				&mcp.TextContent{Text: "look"}, &mcp.ImageContent{Data: []byte("hi"), MIMEType: "image/png"},
				&mcp.ResourceLink{URI: "file:///x", Name: "x"},
			},
			StructuredContent: map[string]any{"n": 7},
		}, nil
	})
	add("hang", func(ctx context.Context, req *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, error) {
		if token := req.Params.GetProgressToken(); token != nil {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Message: "half"})
		}
		select {
		case <-ctx.Done():
		case <-release:
			return nil, nil
		}
		_ = os.WriteFile(filepath.Join(dir, "cancelled"), nil, 0o600)
		return nil, ctx.Err()
	})
	add("env", func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, error) {
		return say(strings.Join(os.Environ(), "\n")), nil
	})
	add("die", func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, error) {
		os.Exit(3)
		return nil, nil
	})
	add("fail", func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, error) {
		return nil, errors.New("it cannot be done")
	})
	return s
}

func stdio(t testing.TB, name string) (s mcptool.Server, dir string) {
	dir = t.TempDir()
	return mcptool.Server{Name: name, Command: os.Args[0], Env: []string{serverEnv + "=" + dir}}, dir
}

func open(t testing.TB, cfg mcptool.Config) *mcptool.Set {
	t.Helper()
	cfg.MinPause = 20 * time.Millisecond
	set, err := mcptool.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	return set
}

func call(t testing.TB, set *mcptool.Set, name, args string) loop.ToolResult {
	t.Helper()
	list, _ := set.Tools(name)
	if len(list) != 1 {
		t.Fatalf("%d tools for %s; servers: %v", len(list), name, set.Status())
	}
	res, err := list[0].Execute(t.Context(), loop.Call{Name: name, Args: json.RawMessage(args), Key: "s/1/0/0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func text(r loop.ToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if t, ok := c.(*loop.Text); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String()
}

func failure(r loop.ToolResult) mcptool.Failure {
	var d struct{ Error mcptool.Failure }
	_ = json.Unmarshal(r.Details, &d)
	return d.Error
}

// inBoth runs a test over stdio and over HTTP.
func inBoth(t *testing.T, f func(t *testing.T, s mcptool.Server)) {
	t.Run("stdio", func(t *testing.T) {
		s, _ := stdio(t, "srv")
		f(t, s)
	})
	t.Run("http", func(t *testing.T) {
		release := make(chan struct{})
		s := newServer(t.TempDir(), release)
		handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer token" {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			handler.ServeHTTP(w, r)
		}))
		t.Cleanup(web.Close)
		t.Cleanup(func() { close(release) })
		t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
		f(t, mcptool.Server{Name: "srv", URL: web.URL, Headers: map[string]string{"Authorization": "Bearer token"}})
	})
}

func TestToolsArePrefixedAndInStableOrder(t *testing.T) {
	inBoth(t, func(t *testing.T, s mcptool.Server) {
		set := open(t, mcptool.Config{Servers: []mcptool.Server{s}})
		list, missing := set.Tools("srv_*", "other_*")
		var names []string
		for _, tool := range list {
			names = append(names, tool.Spec().Name)
		}
		want := []string{"srv_all", "srv_die", "srv_echo", "srv_env", "srv_fail", "srv_hang"}
		if !slices.Equal(names, want) || !slices.Equal(missing, []string{"other_*"}) {
			t.Errorf("tools %v, missing %v", names, missing)
		}
		spec := list[2].Spec()
		if spec.Description != "does echo" || !strings.Contains(string(spec.Parameters), "any text") || !spec.Idempotent || list[1].Spec().Idempotent {
			t.Errorf("spec %+v", spec)
		}
	})
}

func TestCallCarriesItsKey(t *testing.T) {
	inBoth(t, func(t *testing.T, s mcptool.Server) {
		res := call(t, open(t, mcptool.Config{Servers: []mcptool.Server{s}}), "srv_echo", `{"text":"hello"}`)
		if res.IsError || text(res) != "hello s/1/0/0" {
			t.Errorf("got %q", text(res))
		}
	})
}

func TestProgressIsAnUpdateWhileTheCallRuns(t *testing.T) {
	inBoth(t, func(t *testing.T, s mcptool.Server) {
		list, _ := open(t, mcptool.Config{Servers: []mcptool.Server{s}}).Tools("srv_hang")
		ctx, cancel := context.WithCancelCause(t.Context())
		seen := errors.New("progress was seen")
		_, err := list[0].Execute(ctx, loop.Call{}, func(r loop.ToolResult) {
			if text(r) == "half\n" {
				cancel(seen)
			}
		})
		if !errors.Is(err, seen) {
			t.Errorf("got %v", err)
		}
	})
}

func TestImagesAndStructuredContentAreCarriedOver(t *testing.T) {
	inBoth(t, func(t *testing.T, s mcptool.Server) {
		res := call(t, open(t, mcptool.Config{Servers: []mcptool.Server{s}}), "srv_all", `{}`)
		if len(res.Content) != 3 || string(res.Details) != `{"structuredContent":{"n":7}}` {
			t.Fatalf("%d blocks, details %s", len(res.Content), res.Details)
		}
		if image, ok := res.Content[1].(*loop.Image); !ok || image.Data != "aGk=" || image.MIMEType != "image/png" {
			t.Errorf("second block is %+v", res.Content[1])
		}
	})
}

func TestToolsErrorIsAnErrorResult(t *testing.T) {
	inBoth(t, func(t *testing.T, s mcptool.Server) {
		res := call(t, open(t, mcptool.Config{Servers: []mcptool.Server{s}}), "srv_fail", `{}`)
		if !res.IsError || text(res) != "it cannot be done" {
			t.Errorf("got %q, error %v", text(res), res.IsError)
		}
	})
}

func TestDeadlineLeavesTheServerAlive(t *testing.T) {
	inBoth(t, func(t *testing.T, s mcptool.Server) {
		s.Timeout = 300 * time.Millisecond
		var starts atomic.Int32
		set := open(t, mcptool.Config{Servers: []mcptool.Server{s}, Changed: func(string, error) { starts.Add(1) }})
		if res := call(t, set, "srv_hang", `{}`); failure(res) != mcptool.FailureDeadline || !res.IsError {
			t.Errorf("got %q %s", text(res), res.Details)
		}
		if res := call(t, set, "srv_echo", `{"text":"still"}`); !strings.HasPrefix(text(res), "still") {
			t.Errorf("afterwards: %q", text(res))
		}
		if n := starts.Load(); n != 1 {
			t.Errorf("the server came or went %d times, want only its start", n)
		}
	})
}

func TestCancelStopsTheCallAndLeavesTheServerAlive(t *testing.T) {
	s, dir := stdio(t, "srv")
	set := open(t, mcptool.Config{Servers: []mcptool.Server{s}})
	list, _ := set.Tools("srv_hang")
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(200*time.Millisecond, func() { cancel(why) })
	defer timer.Stop()
	if _, err := list[0].Execute(ctx, loop.Call{}, nil); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
	eventually(t, "the server to see the cancellation", func() bool {
		_, err := os.Stat(filepath.Join(dir, "cancelled"))
		return err == nil
	})
	if res := call(t, set, "srv_echo", `{"text":"still"}`); !strings.HasPrefix(text(res), "still") {
		t.Errorf("afterwards: %q", text(res))
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
		time.Sleep(5 * time.Millisecond) // another process, nothing tells
	}
}

func TestDeadServerIsStartedAgainAndItsToolsStayListed(t *testing.T) {
	s, _ := stdio(t, "srv")
	gone, back := make(chan error, 8), make(chan struct{}, 8)
	set := open(t, mcptool.Config{Servers: []mcptool.Server{s}, Changed: func(_ string, err error) {
		if err != nil {
			gone <- err
		} else {
			back <- struct{}{}
		}
	}})
	<-back
	if res := call(t, set, "srv_die", `{}`); failure(res) != mcptool.FailureVanished || !res.IsError {
		t.Errorf("got %q %s", text(res), res.Details)
	}
	if err := <-gone; err == nil {
		t.Error("its absence has no reason")
	}
	if list, _ := set.Tools("srv_*"); len(list) != 6 {
		t.Errorf("%d tools while it is gone, want the same as before", len(list))
	}
	<-back
	if res := call(t, set, "srv_echo", `{"text":"again"}`); !strings.HasPrefix(text(res), "again") {
		t.Errorf("after its return: %q", text(res))
	}
}

func TestAbsentServerDoesNotKeepTheOthersAway(t *testing.T) {
	s, _ := stdio(t, "srv")
	set := open(t, mcptool.Config{Servers: []mcptool.Server{s, {Name: "none", Command: "/no/such/server"}}})
	if res := call(t, set, "srv_echo", `{"text":"here"}`); !strings.HasPrefix(text(res), "here") {
		t.Errorf("got %q", text(res))
	}
	if err := set.Status()["none"]; err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("the absent one says %v", err)
	}
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	set := open(t, mcptool.Config{Servers: []mcptool.Server{{Name: "srv", Command: "sh", Args: []string{"-c", "echo no licence >&2; exit 1"}}}})
	if err := set.Status()["srv"]; err == nil || !strings.Contains(err.Error(), "no licence") {
		t.Errorf("got %v, want what it said on stderr", err)
	}
}

func TestEnvironmentIsNotTheWorkers(t *testing.T) {
	t.Setenv("PI_NATS_PASSWORD", "hunter22")
	t.Setenv("WANTED", "yes")
	s, _ := stdio(t, "srv")
	s.Env = append(s.Env, "WANTED", "SET=1")
	env := text(call(t, open(t, mcptool.Config{Servers: []mcptool.Server{s}}), "srv_env", `{}`))
	if strings.Contains(env, "hunter22") || !strings.Contains(env, "WANTED=yes") || !strings.Contains(env, "SET=1") {
		t.Errorf("environment:\n%s", env)
	}
}

func TestCollisionsAreRefusedAtStart(t *testing.T) {
	a, _ := stdio(t, "a")
	b, _ := stdio(t, "a")
	if _, err := mcptool.Open(t.Context(), mcptool.Config{Servers: []mcptool.Server{a, b}}); !errors.Is(err, mcptool.ErrServer) {
		t.Errorf("two servers of one name: %v", err)
	}
	// "x" with the tool "y_echo" and "x_y" with "echo".
	s := newServer(t.TempDir(), nil)
	mcp.AddTool(s, &mcp.Tool{Name: "y_echo"}, func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	defer web.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	c, _ := stdio(t, "x_y")
	_, err := mcptool.Open(t.Context(), mcptool.Config{Servers: []mcptool.Server{c, {Name: "x", URL: web.URL}}})
	if !errors.Is(err, mcptool.ErrCollision) || !strings.Contains(err.Error(), "x_y_echo") {
		t.Errorf("got %v", err)
	}
}

func TestUnusableServersAreRefused(t *testing.T) {
	for _, s := range []mcptool.Server{
		{Name: "a b", Command: "x"}, {Name: "", Command: "x"}, {Name: "a"}, {Name: "a", Command: "x", URL: "http://x"}, {Name: "a__b", Command: "x"},
	} {
		if _, err := mcptool.Open(t.Context(), mcptool.Config{Servers: []mcptool.Server{s}}); !errors.Is(err, mcptool.ErrServer) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
