package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/pi-worker/pi-worker/client"
)

var updateTop = flag.Bool("update-top", false, "write docs/top.txt anew")

// thousand sessions of a busy fleet.
func thousand(now time.Time) []*client.SessionInfo {
	states := []string{client.StateRunning, client.StateIdle, client.StateIdle, client.StateWaiting}
	tools := []string{"", "bash", "read", "edit"}
	var all []*client.SessionInfo
	for i := range 1000 {
		s := &client.SessionInfo{
			Session: fmt.Sprintf("order-%04d", i), State: states[i%4], Model: "gpt-5-mini", Tokens: int64(i * 137), Cost: float64(i) / 1000,
			Updated: now.Add(-time.Duration(i*7) * time.Second), Prompts: i % 9,
		}
		if s.State == client.StateRunning {
			s.Worker, s.Turn, s.Tool = fmt.Sprintf("worker-%d", i%16), i%12+1, tools[i/4%4]
		}
		if i == 500 {
			s.State = client.StateLost
		}
		all = append(all, s)
	}
	return all
}

func viewOf(width, height int) *fleetView {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	m := &fleetView{sort: "state", every: time.Second}
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.Update(loaded{sessions: thousand(now), at: now})
	return m
}

// The picture in docs is the one that top draws.
func TestTopOfAThousandSessionsIsTheOneInDocs(t *testing.T) {
	const file = "../../docs/top.txt"
	got := viewOf(100, 30).screen() + "\n"
	if *updateTop {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("top draws\n%s\nwant\n%s", got, want)
	}
}

func TestTopFitsTheTerminal(t *testing.T) {
	for _, size := range [][2]int{{100, 30}, {40, 10}, {20, 3}} {
		lines := strings.Split(viewOf(size[0], size[1]).screen(), "\n")
		if len(lines) > max(size[1], 5) {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, l := range lines {
			if n := len([]rune(l)); n > size[0] {
				t.Errorf("%v: a line of %d", size, n)
			}
		}
	}
}

func TestTopKeys(t *testing.T) {
	m := viewOf(100, 30)
	press := func(key string) string { m.key(key); return m.screen() }
	if s := press("f"); !strings.Contains(s, "1–1 of 1 ·") || !strings.Contains(s, "order-0500") {
		t.Errorf("f shows not the lost one alone:\n%s", s)
	}
	m.state = ""
	m.sort = "tokens"
	if s := press("home"); !strings.Contains(strings.Split(s, "\n")[3], "order-0999") {
		t.Errorf("the dearest is not first:\n%s", s)
	}
	press("pgdown")
	if s := press("down"); !strings.Contains(s, "27–52 of 1000") {
		t.Errorf("a page and a line down:\n%s", s)
	}
	for range 100 {
		press("pgdown")
	}
	if s := m.screen(); !strings.Contains(s, "975–1000 of 1000") {
		t.Errorf("the end:\n%s", s)
	}
	if m.key("q") == nil {
		t.Error("q does not end it")
	}
}

// A broker that is away for a moment leaves the old list, and says so.
func TestTopKeepsTheListThroughTrouble(t *testing.T) {
	m := viewOf(200, 30)
	m.Update(loaded{err: errors.New("NATS does not answer")})
	if s := m.screen(); !strings.Contains(s, "1000 sessions") || !strings.Contains(s, "NATS does not answer") {
		t.Errorf("it shows\n%s", s)
	}
}

func TestTopWithoutATerminalIsPs(t *testing.T) {
	f := newFleet(t)
	f.cli(t, "top").want(t, exitOK, "SESSION", "")
	f.cli(t, "top", "--sort", "nonsense").want(t, exitUsage, "", "--sort is state")
	f.cli(t, "ps", "--state", "dead").want(t, exitUsage, "", "--state is running")
}

func TestPsSortsAndFilters(t *testing.T) {
	all := thousand(time.Now())
	running, err := inStates(all, []string{client.StateRunning, client.StateLost})
	if err != nil || len(running) != 250 {
		t.Fatalf("%d sessions are running or lost: %v", len(running), err)
	}
	if err := sortSessions(running, "cost"); err != nil || running[0].Session != "order-0996" {
		t.Errorf("the dearest is %s: %v", running[0].Session, err)
	}
	if err := sortSessions(running, "state"); err != nil || running[0].State != client.StateLost {
		t.Errorf("the lost one is not first: %v", err)
	}
}
