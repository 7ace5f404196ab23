package secret

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKnownValuesAreReplaced(t *testing.T) {
	m := New("secret", "secret-and-more", "tiny", `quo"ted-secret`)
	for in, want := range map[string]string{
		"a secret, a secret-and-more": "a [secret], a [secret]",
		"tiny":                        "tiny",
		`{"a":"quo\"ted-secret"}`:     `{"a":"[secret]"}`,
		`quo"ted-secret`:              "[secret]",
	} {
		if got := m.Text(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	if got := (*Mask)(nil).Text("secret"); got != "secret" {
		t.Errorf("no mask: got %s", got)
	}
	m.Add("later-one", "")
	if got := m.Text("secret later-one"); got != "[secret] [secret]" {
		t.Errorf("after Add: %s", got)
	}
	var out strings.Builder
	if n, err := m.Writer(&out).Write([]byte("key=later-one\n")); n != 14 || err != nil || out.String() != "key=[secret]\n" {
		t.Errorf("wrote %d, %v, %q", n, err, out.String())
	}
}

// Wherever a text is cut into pieces, no value is in what comes out, and
// nothing else is missing but what may still become one.
func TestStreamHidesValuesAcrossPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := []string{"abcabcabd", "abcabd", "sesame-street", "ab", "x", " ", "sesame"}
		m := New("abcabcabd", "abcabd", "sesame-street")
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 12).Draw(t, "text"), "")
		s, out := m.Stream(), ""
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			out += s.Text(rest[:n])
			rest = rest[n:]
		}
		for _, v := range m.Values() {
			if strings.Contains(out, v) {
				t.Fatalf("%q has %q", out, v)
			}
		}
		if whole := out + m.Text(s.held); whole != m.Text(text) {
			t.Fatalf("%q became %q, at once it is %q", text, whole, m.Text(text))
		}
	})
}
