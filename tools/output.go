package tools

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
	"unicode/utf8"
)

// PrivateDir is where the tools keep their own files in a workspace. It holds
// a .gitignore of its own, so that git and the searching tools leave it out.
const PrivateDir = privateDir

const privateDir = ".pi-worker"

// output takes what a command writes. It keeps the end of the text for the
// model and the whole in a file as soon as it is too long for a result; its
// memory does not grow with the output.
type output struct {
	w *Workspace
	d decoder
	// call is the key of the call, part of the file's name.
	call string

	tail     []byte // end of the decoded text, at least maxBytes of it
	raw      []byte // everything so far, while there is no file
	newlines int
	bytes    int // decoded
	lastLine int // length of the line that is not ended
	prevLine int // length of the one before

	file     *os.File
	filePath string // relative to the workspace
	fileErr  error  // why there is no whole file
	fileSize int64
	dropped  int64 // bytes over the file's limit
}

// add takes a piece and returns its text, which is valid until the next call.
func (o *output) add(p []byte, end bool) []byte {
	o.keep(p)
	start := len(o.tail)
	o.tail = o.d.appendTo(o.tail, p, end)
	text := o.tail[start:]
	o.bytes += len(text)
	if n := bytes.Count(text, []byte{'\n'}); n > 0 {
		o.count(text)
		o.newlines += n
	} else {
		o.lastLine += len(text)
	}
	if o.tooLong() && o.file == nil && o.fileErr == nil {
		o.create()
	}
	if len(o.tail) > 8*maxBytes {
		cut := o.tail[len(o.tail)-2*maxBytes:]
		text = bytes.Clone(text)
		o.tail = append(o.tail[:0], cut...)
	}
	return text
}

// count measures the last two lines of a text with newlines.
func (o *output) count(text []byte) {
	last := bytes.LastIndexByte(text, '\n')
	before := bytes.LastIndexByte(text[:last], '\n')
	if before < 0 {
		o.prevLine = o.lastLine + last
	} else {
		o.prevLine = last - before - 1
	}
	o.lastLine = len(text) - last - 1
}

// keep puts raw bytes aside for the file, or into it.
func (o *output) keep(p []byte) {
	if o.fileErr != nil {
		return
	}
	if o.file == nil {
		o.raw = append(o.raw, p...)
		return
	}
	if room := o.w.opt.Limits.OutputBytes - o.fileSize; int64(len(p)) > room {
		o.dropped += int64(len(p)) - room
		p = p[:room]
	}
	n, err := o.file.Write(p)
	o.fileSize += int64(n)
	if err != nil {
		o.lose(err)
	}
}

func (o *output) create() {
	o.w.pruneOutputs()
	f, rel, err := o.w.createPrivate("output", "bash-"+callName(o.call), ".log")
	if err != nil {
		o.lose(err)
		return
	}
	o.file, o.filePath = f, rel
	raw := o.raw
	o.raw = nil
	o.keep(raw)
}

// lose gives up the file; the result is made without it.
func (o *output) lose(err error) {
	o.fileErr, o.raw = hostError(err, privateDir), nil
	o.close()
}

func (o *output) close() {
	if o.file != nil {
		if err := o.file.Close(); err != nil && o.fileErr == nil {
			o.fileErr = hostError(err, o.filePath)
		}
		o.file = nil
	}
}

// createPrivate makes a new file, mode 0600, in a folder of privateDir.
func (w *Workspace) createPrivate(folder, prefix, suffix string) (*os.File, string, error) {
	if err := w.privateFolder(folder); err != nil {
		return nil, "", err
	}
	var id [8]byte
	rand.Read(id[:])
	rel := privateDir + "/" + folder + "/" + prefix + hex.EncodeToString(id[:]) + suffix
	f, err := w.root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return f, rel, err
}

// maxOutputs is how many whole outputs a workspace keeps; older ones go.
const maxOutputs = 32

// pruneOutputs makes room for one more output.
func (w *Workspace) pruneOutputs() {
	dir := privateDir + "/output"
	entries, err := fs.ReadDir(w.root.FS(), dir)
	if err != nil || len(entries) < maxOutputs {
		return
	}
	age := func(e fs.DirEntry) time.Time {
		info, err := e.Info()
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return age(a).Compare(age(b)) })
	for _, e := range entries[:len(entries)-maxOutputs+1] {
		_ = w.root.Remove(dir + "/" + e.Name())
	}
}

// privateFolder makes a folder of privateDir, which git and searches leave out.
func (w *Workspace) privateFolder(folder string) error {
	if err := w.root.MkdirAll(privateDir+"/"+folder, 0o700); err != nil {
		return err
	}
	ignore, err := w.root.OpenFile(privateDir+"/.gitignore", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, _ = io.WriteString(ignore, "*\n")
		ignore.Close()
	}
	return nil
}

// result is the text for the model, with what is missing; nil truncation if
// it is whole.
func (o *output) result() (string, *truncation) {
	t := o.truncate()
	if t == nil {
		return string(o.tail), nil
	}
	end := t.TotalLines
	var text string
	switch {
	case t.LastLinePartial:
		line, size := end, o.lastLine
		if size == 0 {
			line, size = end-1, o.prevLine
		}
		text = fmt.Sprintf("Showing last %s of line %d (line is %s)", formatSize(t.OutputBytes), line, formatSize(size))
	case t.TruncatedBy == byLines:
		text = fmt.Sprintf("Showing lines %d-%d of %d", end-t.OutputLines+1, end, end)
	default:
		text = fmt.Sprintf("Showing lines %d-%d of %d (%s limit)", end-t.OutputLines+1, end, end, formatSize(maxBytes))
	}
	return t.Content + "\n\n[" + text + ". " + o.fileNote() + "]", t
}

func (o *output) fileNote() string {
	switch {
	case o.fileErr != nil:
		return "The full output could not be kept: " + o.fileErr.Error()
	case o.dropped > 0:
		return fmt.Sprintf("Output of %s, the first %s of it: %s",
			formatSize(int(o.fileSize+o.dropped)), formatSize(int(o.fileSize)), o.filePath)
	}
	return "Full output: " + o.filePath
}

// truncate keeps the last whole lines within the limits; nil if all of the
// text is within them. A final newline does not count as a line of its own
// when that would be the only reason to cut.
func (o *output) truncate() *truncation {
	if !o.tooLong() {
		return nil
	}
	t := &truncation{
		Truncated: true, TruncatedBy: byLines,
		TotalLines: o.newlines + 1, TotalBytes: o.bytes, MaxLines: maxLines, MaxBytes: maxBytes,
	}
	text, start := o.tail, len(o.tail)
	for end := len(text); t.OutputLines < maxLines; end = start - 1 {
		from := bytes.LastIndexByte(text[:end], '\n') + 1
		if len(text)-from > maxBytes {
			t.TruncatedBy = byBytes
			break
		}
		start = from
		t.OutputLines++
		if start == 0 {
			break
		}
	}
	if t.TruncatedBy == byBytes && start == len(text) { // not one whole line fits
		start = partialLine(text)
		t.OutputLines, t.LastLinePartial = 1, true
	}
	t.Content = string(text[start:])
	t.OutputBytes = len(t.Content)
	return t
}

// tooLong says whether the text is over the limits.
func (o *output) tooLong() bool {
	lines := o.newlines
	if o.lastLine > 0 {
		lines++
	}
	return o.bytes > maxBytes || lines > maxLines
}

// partialLine is where the last maxBytes of text begin, at a character.
func partialLine(text []byte) int {
	start := max(0, len(text)-maxBytes)
	for start < len(text) && !utf8.RuneStart(text[start]) {
		start++
	}
	return start
}
