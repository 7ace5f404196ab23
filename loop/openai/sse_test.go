package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// readEvents gives all events as "name|data", with "!" before one without its
// blank line.
func readEvents(r *Reader) (out []string, err error) {
	for {
		ev, err := r.Next()
		if err != nil {
			return out, err
		}
		s := string(ev.Name) + "|" + string(ev.Data)
		if ev.Last {
			s = "!" + s
		}
		out = append(out, s)
	}
}

// streams are event streams with what is in them.
var streams = []struct {
	name, in string
	want     []string
}{
	{"LF", "data: a\n\ndata: b\n\n", []string{"|a", "|b"}},
	{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"|a", "|b"}},
	{"bare CR", "data: a\r\rdata: b\r\r", []string{"|a", "|b"}},
	{"mixed ends", "data: a\r\n\rdata: b\n\r\ndata: c\r\r", []string{"|a", "|b", "|c"}},
	{"byte order mark", "\xef\xbb\xbfdata: a\n\n", []string{"|a"}},
	{"mark before a comment", "\xef\xbb\xbf: x\ndata: a\n\n", []string{"|a"}},
	{"no space", "data:a\n\n", []string{"|a"}},
	{"one space only", "data:  a \n\n", []string{"| a "}},
	{"comments", ": keep-alive\n\n:\n\ndata: a\n: between\n\n", []string{"|a"}},
	{"several data lines", "data: a\ndata: b\ndata:\ndata: c\n\n", []string{"|a\nb\n\nc"}},
	{"event, id and retry", "event: e\nid: 7\nretry: 10\ndata: a\n\ndata: b\n\n", []string{"e|a", "|b"}},
	{"last event name counts", "event: a\nevent: b\ndata: x\n\n", []string{"b|x"}},
	{"empty data", "data\n\ndata:\n\ndata: a\n\n", []string{"|a"}},
	{"unknown field", "datum: x\ndata: a\nfoo\n\n", []string{"|a"}},
	{"no blank line", "data: a\n\ndata: b\n", []string{"|a", "!|b"}},
	{"no newline", "data: a\n\nevent: e\ndata: b", []string{"|a", "!e|b"}},
	{"several lines, no end", "data: a\ndata: b", []string{"!|a\nb"}},
	{"only a mark", "\xef\xbb\xbf", nil},
	{"blank lines", "\n\r\n\r\r\n", nil},
	{"nothing", "", nil},
}

func TestReader(t *testing.T) {
	for _, s := range streams {
		t.Run(s.name, func(t *testing.T) {
			for split := range len(s.in) + 1 {
				in := io.MultiReader(strings.NewReader(s.in[:split]), strings.NewReader(s.in[split:]))
				got, err := readEvents(NewReader(in))
				if err != io.EOF || !slices.Equal(got, s.want) {
					t.Fatalf("split at %d: %q, %v; want %q", split, got, err, s.want)
				}
			}
			got, err := readEvents(NewReader(iotest.OneByteReader(strings.NewReader(s.in))))
			if err != io.EOF || !slices.Equal(got, s.want) {
				t.Errorf("byte by byte: %q, %v; want %q", got, err, s.want)
			}
		})
	}
}

func TestReaderLongLines(t *testing.T) {
	for _, size := range []int{readSize - 8, readSize, 3 * readSize, 1 << 20} {
		long := strings.Repeat("x", size)
		in := fmt.Sprintf("data: a\n\ndata: %s\r\n\r\ndata: %s\ndata: %s\n\ndata: b\n\n", long, long, long)
		got, err := readEvents(NewReader(strings.NewReader(in)))
		if want := []string{"|a", "|" + long, "|" + long + "\n" + long, "|b"}; err != io.EOF || !slices.Equal(got, want) {
			t.Errorf("%d bytes: %d events, %v", size, len(got), err)
		}
	}
}

func TestReaderRefusesEndlessLines(t *testing.T) {
	endless := map[string]io.Reader{
		"a line":            io.MultiReader(strings.NewReader("data: a\n\ndata: "), strings.NewReader(strings.Repeat("x", 3<<20))),
		"an event of lines": strings.NewReader("data: a\n\n" + strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", 3000)),
	}
	for name, in := range endless {
		r := NewReader(in)
		r.max = 2 << 20
		got, err := readEvents(r)
		if len(got) != 1 || !errors.Is(err, ErrTooLong) {
			t.Errorf("%s: %d events, %v", name, len(got), err)
		}
		if _, again := r.Next(); !errors.Is(again, ErrTooLong) {
			t.Errorf("%s: the error does not stay: %v", name, again)
		}
		if len(r.buf) > 8<<20 {
			t.Errorf("%s: a buffer of %d bytes", name, len(r.buf))
		}
	}
}

// TestReaderDropsWhatABrokenReadLeft: only a clean end makes an event of an
// unfinished one.
func TestReaderDropsWhatABrokenReadLeft(t *testing.T) {
	broken := errors.New("cut")
	in := io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken))
	got, err := readEvents(NewReader(in))
	if !slices.Equal(got, []string{"|a"}) || err != broken {
		t.Errorf("%q, %v", got, err)
	}
}

func TestReaderDoesNotAllocatePerEvent(t *testing.T) {
	body := bytes.Repeat([]byte("event: e\ndata: {\"a\":1}\n\n"), 10000)
	n := testing.AllocsPerRun(3, func() {
		r := NewReader(bytes.NewReader(body))
		for {
			if _, err := r.Next(); err != nil {
				return
			}
		}
	})
	if n > 10 {
		t.Errorf("%v allocations for 10000 events", n)
	}
}

// slowEvents is the plain reading of the standard, to compare with.
func slowEvents(in string) (out []string) {
	in = strings.TrimPrefix(in, "\xef\xbb\xbf")
	in = strings.ReplaceAll(strings.ReplaceAll(in, "\r\n", "\n"), "\r", "\n")
	name, data, mark := "", []string(nil), ""
	flush := func() {
		if s := strings.Join(data, "\n"); s != "" {
			out = append(out, mark+name+"|"+s)
		}
		name, data = "", nil
	}
	for _, line := range strings.Split(in, "\n") {
		if line == "" {
			flush()
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			name = value
		}
	}
	return out
}

func FuzzReader(f *testing.F) {
	for _, s := range streams {
		f.Add([]byte(s.in), uint8(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		got, err := readEvents(NewReader(bytes.NewReader(in)))
		if err != io.EOF {
			t.Fatal(err)
		}
		pieces, _ := readEvents(NewReader(&stepReader{in, int(step)%7 + 1}))
		if !slices.Equal(got, pieces) {
			t.Fatalf("in one piece %q, in steps %q", got, pieces)
		}
		if whole := string(in) + "\n\n"; !bytes.HasSuffix(in, []byte("\r")) {
			want := slowEvents(whole)
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], "!")
			}
			if !slices.Equal(got, want) && !slices.ContainsFunc(want, func(s string) bool { return strings.HasPrefix(s, "!") }) {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	})
}

// stepReader gives n bytes at a time.
type stepReader struct {
	b []byte
	n int
}

func (r *stepReader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.n)], r.b)
	r.b = r.b[n:]
	return n, nil
}

// A stream of small pieces needs a small buffer, one of large pieces gets a
// large one.
func TestReaderBufferFitsThePieces(t *testing.T) {
	body := strings.Repeat("data: {\"a\":1}\n\n", 10000)
	for _, c := range []struct {
		in   io.Reader
		want int
	}{
		{iotest.OneByteReader(strings.NewReader(body)), firstSize},
		{strings.NewReader(body), readSize},
	} {
		r := NewReader(c.in)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
		if len(r.buf) != c.want {
			t.Errorf("a buffer of %d bytes, want %d", len(r.buf), c.want)
		}
	}
}
