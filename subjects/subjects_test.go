package subjects_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pi-worker/pi-worker/subjects"
)

func TestNamesOfPrefix(t *testing.T) {
	for _, c := range []struct{ prefix, got, want string }{
		{"", subjects.Names{}.Input("s1", subjects.KindFollowUp), "agent.s1.followup"},
		{"", subjects.Names{}.Inputs("s1"), "agent.s1.*"},
		{"", subjects.Names{}.Events("s1"), "agent.s1.events"},
		{"", subjects.Names{}.Bell("s1"), "agent-bell.s1"},
		{"", subjects.Names{}.DLQ("s1"), "agent-dlq.s1"},
		{"", subjects.Names{}.Owns("w"), "agent-worker.w.owns"},
		{"", subjects.Names{}.InboxStream(), "AGENT_INBOX"},
		{"", subjects.Names{}.BlobBucket(), "AGENT_BLOBS"},
		{"acme.dev", subjects.Names{Prefix: "acme.dev"}.Bell("s1"), "acme.dev-bell.s1"},
		{"acme.dev", subjects.Names{Prefix: "acme.dev"}.EventsStream(), "ACME_DEV_EVENTS"},
	} {
		if c.got != c.want {
			t.Errorf("prefix %q: %s, want %s", c.prefix, c.got, c.want)
		}
	}
}

func TestParseSessionRefuses(t *testing.T) {
	for _, id := range []string{"", "a.b", "*", ">", "a b", "é", "a\n", strings.Repeat("x", 65)} {
		if _, err := subjects.ParseSession(id); !errors.Is(err, subjects.ErrSession) {
			t.Errorf("%q: %v, want ErrSession", id, err)
		}
	}
	for _, id := range []string{"a", "A-z_0", strings.Repeat("x", 64)} {
		if got, err := subjects.ParseSession(id); err != nil || got != id {
			t.Errorf("%q: %q, %v", id, got, err)
		}
	}
}

func TestParsePrefix(t *testing.T) {
	for in, want := range map[string]string{"": "agent", "a": "a", "a.b-c": "a.b-c"} {
		if got, err := subjects.ParsePrefix(in); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{".", "a.", ".a", "a..b", "*", "a.>", "a b", "$JS"} {
		if _, err := subjects.ParsePrefix(in); !errors.Is(err, subjects.ErrPrefix) {
			t.Errorf("%q: %v, want ErrPrefix", in, err)
		}
	}
}

// What parses is exactly what the builders build.
func FuzzParsers(f *testing.F) {
	for _, s := range []string{"agent.s.prompt", "agent.s.events", "agent-bell.s", "agent-dlq.s", "agent.s.x", "agent..prompt", "agent.s.prompt.x", ""} {
		f.Add("", s)
		f.Add("a.b", s)
	}
	f.Fuzz(func(t *testing.T, prefix, subject string) {
		if _, err := subjects.ParsePrefix(prefix); err != nil {
			return
		}
		n := subjects.Names{Prefix: prefix}
		if s, kind, err := n.ParseInput(subject); err == nil && n.Input(s, kind) != subject {
			t.Errorf("input %q parsed as %q %q", subject, s, kind)
		}
		if s, err := n.ParseEvents(subject); err == nil && n.Events(s) != subject {
			t.Errorf("events %q parsed as %q", subject, s)
		}
		if s, err := n.ParseBell(subject); err == nil && n.Bell(s) != subject {
			t.Errorf("bell %q parsed as %q", subject, s)
		}
		if s, err := n.ParseDLQ(subject); err == nil && n.DLQ(s) != subject {
			t.Errorf("dead letter %q parsed as %q", subject, s)
		}
		if s, err := subjects.ParseSession(subject); err == nil {
			if back, kind, err := n.ParseInput(n.Input(s, subjects.KindSteer)); err != nil || back != s || kind != subjects.KindSteer {
				t.Errorf("session %q came back as %q %q, %v", s, back, kind, err)
			}
		}
	})
}
