package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// errOutside is the one answer to every path that leads out of the workspace.
var errOutside = errors.New("EACCES: path is outside the workspace")

// pathError says what went wrong with a file, with the path that the model
// knows.
type pathError struct {
	code string // "ENOENT"
	text string
	path string // relative to the workspace
	err  error
}

func (e *pathError) Error() string { return e.code + ": " + e.text + ": " + display(e.path) }
func (e *pathError) Unwrap() error { return e.err }

// display is a path for people: unprintable characters are escaped.
func display(p string) string { return escapeName(p) }

// hostError turns an error of the operating system into one without host
// paths.
func hostError(err error, rel string) error {
	var errno syscall.Errno
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*pathError)), errors.Is(err, errOutside), errors.Is(err, errAborted):
		return err
	case strings.Contains(err.Error(), "path escapes from parent"):
		return errOutside
	case strings.Contains(err.Error(), "too many steps"), errors.Is(err, syscall.ELOOP):
		return &pathError{"ELOOP", "too many symbolic links", rel, err}
	case errors.Is(err, os.ErrClosed):
		return ErrClosed
	case errors.As(err, &errno):
		return &pathError{errnoName(errno), errno.Error(), rel, err}
	}
	return &pathError{"EIO", "input or output error", rel, err}
}

func fileError(code, text, rel string) error { return &pathError{code, text, rel, nil} }

// relative makes a path below the workspace of what the model gave: clean,
// with slashes, "." for the workspace itself. dirOK says that a final slash is
// fine.
func (w *Workspace) relative(given string, dirOK bool) (string, error) {
	if strings.ContainsRune(given, 0) {
		return "", fileError("EINVAL", "path holds a NUL", given)
	}
	if given == "~" || strings.HasPrefix(given, "~/") {
		return "", errOutside
	}
	p := given
	if path.IsAbs(p) {
		if p = below(w.dir, p); p == "" {
			p = below(w.name, given)
		}
		if p == "" {
			return "", errOutside
		}
	}
	rel := path.Clean(p)
	if rel == ".." || strings.HasPrefix(rel, "../") {
		return "", errOutside
	}
	if !dirOK && strings.HasSuffix(given, "/") && rel != "." {
		return "", fileError("ENOTDIR", "a file's path cannot end in a slash", rel)
	}
	return rel, nil
}

// below is an absolute path relative to dir; "" if it is not in it.
func below(dir, p string) string {
	rel, err := filepath.Rel(dir, path.Clean(p))
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return ""
	}
	return rel
}

// resolve finds the path that the model means: the exact one if it exists,
// otherwise what pi makes of it (one leading @ dropped, Unicode spaces made
// plain).
func (w *Workspace) resolve(given string, dirOK bool) (string, error) {
	exact, err := w.relative(given, dirOK)
	if err == nil {
		if _, statErr := w.root.Lstat(exact); statErr == nil {
			return exact, nil
		}
	}
	rewritten := plainSpaces(strings.TrimPrefix(given, "@"))
	if rewritten == given {
		return exact, err
	}
	return w.relative(rewritten, dirOK)
}

// resolveRead is resolve with the fallbacks for names that macOS writes.
func (w *Workspace) resolveRead(given string) (string, error) {
	rel, err := w.resolve(given, false)
	if err != nil || w.exists(rel) {
		return rel, err
	}
	curly := func(s string) string { return strings.ReplaceAll(s, "'", "\u2019") }
	for _, try := range []string{
		narrowSpaces(rel), norm.NFD.String(rel), curly(rel), curly(norm.NFD.String(rel)),
	} {
		if try != rel && w.exists(try) {
			return try, nil
		}
	}
	return rel, nil
}

func (w *Workspace) exists(rel string) bool {
	_, err := w.root.Lstat(rel)
	return err == nil
}

// plainSpaces replaces the Unicode spaces that models copy from web pages.
func plainSpaces(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == 0xA0, r >= 0x2000 && r <= 0x200A, r == 0x202F, r == 0x205F, r == 0x3000:
			return ' '
		}
		return r
	}, s)
}

// narrowSpaces puts the narrow no-break space before AM and PM, as macOS does
// in the names of screenshots.
func narrowSpaces(s string) string {
	for _, half := range []string{"AM", "PM", "am", "pm", "Am", "Pm", "aM", "pM"} {
		s = strings.ReplaceAll(s, " "+half+".", "\u202f"+half+".")
	}
	return s
}

// open opens a regular file for reading. Nothing else is ever opened for
// longer than it takes to look at the handle, and nothing blocks.
func (w *Workspace) open(rel string) (*os.File, fs.FileInfo, error) {
	info, err := w.root.Stat(rel)
	if err != nil {
		return nil, nil, hostError(err, rel)
	}
	if err := mustBeRegular(info, rel); err != nil {
		return nil, nil, err
	}
	f, err := w.root.OpenFile(rel, os.O_RDONLY|openNonblock|openNoTTY, 0)
	if err != nil {
		return nil, nil, hostError(err, rel)
	}
	info, err = f.Stat()
	if err == nil {
		err = mustBeRegular(info, rel)
	}
	if err != nil {
		f.Close()
		return nil, nil, hostError(err, rel)
	}
	return f, info, nil
}

func mustBeRegular(info fs.FileInfo, rel string) error {
	switch {
	case info.IsDir():
		return fileError("EISDIR", "is a directory", rel)
	case !info.Mode().IsRegular():
		return fileError("EINVAL", "not a regular file", rel)
	}
	return nil
}

// openDir opens a directory for listing.
func (w *Workspace) openDir(rel string) (*os.File, error) {
	f, err := w.root.OpenFile(rel, os.O_RDONLY|openDirectory|openNonblock, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// aborted is the error of a call whose context ended; nil if it has not.
func aborted(ctx context.Context) error {
	if ctx.Err() != nil {
		return errAborted
	}
	return nil
}

// escapeName shows a file name in one line of valid text: bytes that are no
// UTF-8 as \xNN.
func escapeName(name string) string {
	if utf8.ValidString(name) {
		return escapeControls(name)
	}
	var b strings.Builder
	for i, r := range name {
		if r == utf8.RuneError && !strings.HasPrefix(name[i:], "\uFFFD") {
			fmt.Fprintf(&b, `\x%02x`, name[i])
		} else {
			b.WriteRune(r)
		}
	}
	return escapeControls(b.String())
}

// escapeControls shows line ends and other control characters.
func escapeControls(name string) string {
	isControl := func(r rune) bool { return r < ' ' || r == 0x7F }
	if !strings.ContainsFunc(name, isControl) {
		return name
	}
	var b strings.Builder
	for _, r := range name {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case isControl(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
