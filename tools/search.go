package tools

import (
	"bytes"
	"context"
	"io"
	"os"
	"unicode/utf16"

	"golang.org/x/text/encoding/unicode"
)

const (
	// searchBlock is how much of a file is looked at together, in bytes.
	searchBlock = 128 << 10
	// maxLine is the longest line that is searched whole; of a longer one only
	// the beginning is.
	maxLine = 1 << 20
	// maxShownLine is how much of a line a result shows, in UTF-16 units.
	maxShownLine = 500
)

// matchedLine is one line of a result.
type matchedLine struct {
	number int
	text   string
	cut    bool // shortened
	match  bool // false: context
}

// fileSearch searches one file after the other with the same buffer.
type fileSearch struct {
	ctx     context.Context
	pattern *linePattern
	context int // lines around a match
	max     int // matches wanted of a file
	buf     []byte
	lower   []byte // for the pattern's haystack
}

// search gives the matches of a file, each with its context. binary says that
// it is searched even if it looks binary.
func (s *fileSearch) search(f *os.File, binary bool) (matches [][]matchedLine, err error) {
	var numbers []int
	err = s.lines(f, binary, true, func(number int, line []byte) bool {
		numbers = append(numbers, number)
		matches = append(matches, []matchedLine{shownLine(number, line, true)})
		return len(matches) < s.max
	})
	if err != nil || s.context == 0 || len(matches) == 0 {
		return matches, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return s.around(f, numbers)
}

// around reads a file again for the lines near its matches.
func (s *fileSearch) around(f *os.File, numbers []int) ([][]matchedLine, error) {
	found := make([][]matchedLine, len(numbers))
	first := 0 // match whose context is not over
	err := s.lines(f, true, false, func(number int, line []byte) bool {
		for first < len(numbers) && number > numbers[first]+s.context {
			first++
		}
		for i := first; i < len(numbers) && numbers[i]-s.context <= number; i++ {
			found[i] = append(found[i], shownLine(number, line, number == numbers[i]))
		}
		return first < len(numbers)
	})
	return found, err
}

// lines calls f with the lines that match, or with all of them and, as pi
// does, with the empty one after a final newline. It ends when f returns false.
func (s *fileSearch) lines(file *os.File, binary, matching bool, f func(number int, line []byte) bool) error {
	b := blockReader{src: file, buf: s.buf}
	defer func() { s.buf = b.buf }()
	number, open := 1, false // open: the last block ended inside a line
	for {
		text, err := b.next()
		if err != nil && err != io.EOF {
			return err
		}
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if nul := bytes.IndexByte(text, 0); nul >= 0 && !binary {
			return nil
		}
		hay := text
		if matching {
			if hay = s.pattern.haystack(text, s.lower); s.pattern.fold {
				s.lower = hay
			}
		}
		at := 0
		if open && bytes.HasPrefix(text, []byte{'\n'}) {
			at = 1
			number++
		}
		open = len(text) > 0 && text[len(text)-1] != '\n'
		for {
			start, end := at, len(text)
			if matching {
				start, end = s.pattern.next(text, hay, at)
			} else if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
				end = at + i
			}
			if start < 0 || start >= len(text) {
				number += bytes.Count(text[at:], []byte{'\n'})
				break
			}
			number += bytes.Count(text[at:start], []byte{'\n'})
			if !f(number, text[start:end]) {
				return nil
			}
			if end == len(text) {
				break
			}
			number++
			at = end + 1
		}
		if err == io.EOF {
			if !matching && b.endsInNewline {
				f(number, nil)
			}
			return nil
		}
	}
}

// blockReader gives a file in blocks of whole lines.
type blockReader struct {
	src           io.Reader
	buf           []byte
	have          int // bytes in buf
	used          int // of them given out
	begun         bool
	endsInNewline bool
	skip          bool // the rest of a line that is too long
}

// next gives the next block, which is valid until the call after it; with the
// last one comes io.EOF.
func (b *blockReader) next() ([]byte, error) {
	b.have = copy(b.buf, b.buf[b.used:b.have])
	b.used = 0
	for {
		if b.have == len(b.buf) {
			b.buf = append(b.buf[:b.have], make([]byte, max(searchBlock, len(b.buf)))...)
		}
		n, err := b.src.Read(b.buf[b.have:])
		b.have += n
		if !b.begun && (b.have >= 3 || err != nil) && b.begin() {
			continue
		}
		if b.have > 0 {
			b.endsInNewline = b.buf[b.have-1] == '\n'
		}
		if b.skip {
			b.dropLine()
		}
		if err != nil {
			b.used = b.have
			return b.buf[:b.have], err
		}
		if i := bytes.LastIndexByte(b.buf[:b.have], '\n'); i >= 0 && b.begun {
			b.used = i + 1
			return b.buf[:b.used], nil
		}
		if b.have >= maxLine {
			b.used, b.skip = b.have, true
			return b.buf[:b.used], nil
		}
	}
}

// begin looks at the byte order mark; true if the text is to be read again,
// decoded.
func (b *blockReader) begin() bool {
	b.begun = true
	head := b.buf[:b.have]
	switch {
	case bytes.HasPrefix(head, utf8BOM):
		b.have = copy(b.buf, head[len(utf8BOM):])
	case bytes.HasPrefix(head, []byte{0xFF, 0xFE}), bytes.HasPrefix(head, []byte{0xFE, 0xFF}):
		src := io.MultiReader(bytes.NewReader(bytes.Clone(head)), b.src)
		b.src = unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder().Reader(src)
		b.have = 0
		return true
	}
	return false
}

// dropLine drops what belongs to a line that was given out in part.
func (b *blockReader) dropLine() {
	i := bytes.IndexByte(b.buf[:b.have], '\n')
	if i < 0 {
		b.have = 0
		return
	}
	// The newline stays: it ends the part.
	b.have = copy(b.buf, b.buf[i:b.have])
	b.skip = false
}

// shownLine is a line as results show it.
func shownLine(number int, line []byte, match bool) matchedLine {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	const enough = 4 * (maxShownLine + 1)
	long := len(line) > enough
	text, cut := cutLine(decodeText(line[:min(len(line), enough)]))
	return matchedLine{number, text, cut || long, match}
}

// cutLine shortens a line, at a character.
func cutLine(text string) (string, bool) {
	units := 0
	for i, r := range text {
		units += max(1, utf16.RuneLen(r))
		if units > maxShownLine {
			return text[:i] + "... [truncated]", true
		}
	}
	return text, false
}
