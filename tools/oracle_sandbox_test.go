package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
)

const nobody = 65534

// sandbox is the place of one case: four directories side by side.
type sandbox struct {
	dir                    string
	ws, home, outside, tmp string
	places, names          *strings.Replacer
	start                  map[string][]byte // content of files by path, for images
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	dir, err := os.MkdirTemp("", "tool-oracle-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(p, 0o755)
			}
			return nil
		})
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := sandboxAt(dir)
	for _, d := range []string{dir, s.ws, s.home, s.outside, s.tmp} {
		_ = os.MkdirAll(d, 0o755)
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// sandboxAt names the places of the sandbox in dir.
func sandboxAt(dir string) *sandbox {
	s := &sandbox{
		dir: dir, ws: dir + "/ws", home: dir + "/home", outside: dir + "/outside", tmp: dir + "/tmp",
		start: map[string][]byte{},
	}
	s.places = strings.NewReplacer("$WORKSPACE", s.ws, "$HOMEDIR", s.home, "$OUTSIDE", s.outside, "$TMPDIR", s.tmp)
	s.names = strings.NewReplacer(s.ws, "$WORKSPACE", s.home, "$HOMEDIR", s.outside, "$OUTSIDE", s.tmp, "$TMPDIR", dir, "$SANDBOX")
	return s
}

// build makes a case's files, their modes last.
func (s *sandbox) build(c *oracleCase) error {
	type chmod struct {
		path string
		mode os.FileMode
	}
	var modes []chmod
	for _, f := range c.Files {
		root := s.ws
		switch f.Root {
		case "", "workspace":
		case "home":
			root = s.home
		case "outside":
			root = s.outside
		default:
			return fmt.Errorf("unknown root %q", f.Root)
		}
		name := f.Path
		if f.PathBase64 != nil {
			name = string(f.PathBase64)
		}
		numbers := &oracleRange{0, 0, 0}
		if f.RepeatFiles != nil {
			numbers = f.RepeatFiles
		}
		for i := numbers.From; i <= numbers.To; i++ {
			p := root + "/" + strings.ReplaceAll(name, "{n}", numbers.number(i))
			if f.RepeatFiles == nil {
				p = root + "/" + name
			}
			if err := s.make(&f, p); err != nil {
				return err
			}
			if f.Mode != "" {
				mode, err := strconv.ParseUint(f.Mode, 8, 32)
				if err != nil {
					return err
				}
				modes = append(modes, chmod{p, os.FileMode(mode)})
			}
		}
	}
	if c.RunAs == "nobody" && os.Geteuid() == 0 {
		err := filepath.WalkDir(s.dir, func(p string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(p, nobody, nobody)
		})
		if err != nil {
			return err
		}
	}
	for _, m := range modes {
		if err := os.Chmod(m.path, m.mode); err != nil {
			return err
		}
	}
	return nil
}

func (s *sandbox) make(f *oracleFile, p string) error {
	if f.Dir {
		return os.MkdirAll(p, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	switch {
	case f.Symlink != "":
		return os.Symlink(s.places.Replace(f.Symlink), p)
	case f.Fifo:
		return syscall.Mkfifo(p, 0o644)
	}
	content := f.Base64
	switch {
	case f.Text != nil:
		content = []byte(*f.Text)
	case f.Parts != nil:
		text, err := expand(f.Parts)
		if err != nil {
			return err
		}
		content = []byte(text)
	}
	s.start[filepath.Clean(p)] = content
	return os.WriteFile(p, content, 0o644)
}

// filesAfter lists everything in the sandbox as the oracle does.
func (s *sandbox) filesAfter() (map[string]oracleEntry, error) {
	found := map[string]oracleEntry{}
	for _, root := range []struct{ dir, prefix string }{
		{s.ws, ""}, {s.outside, "$OUTSIDE/"}, {s.home, "$HOMEDIR/"},
	} {
		err := filepath.WalkDir(root.dir, func(p string, d fs.DirEntry, err error) error {
			if p == root.dir {
				return err
			}
			if err != nil && !errors.Is(err, fs.ErrPermission) {
				return err
			}
			rel := strings.TrimPrefix(p, root.dir+"/")
			if rel == privateDir {
				return fs.SkipDir
			}
			e, err := s.entry(p)
			if e.Type == "dir" {
				rel += "/"
			}
			found[root.prefix+decodeText([]byte(rel))] = e
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (s *sandbox) entry(p string) (oracleEntry, error) {
	info, err := os.Lstat(p)
	if err != nil {
		return oracleEntry{}, err
	}
	e := oracleEntry{Mode: fmt.Sprintf("%04o", info.Mode().Perm())}
	switch mode := info.Mode(); {
	case mode.IsDir():
		e.Type = "dir"
	case mode&os.ModeSymlink != 0:
		target, err := os.Readlink(p)
		if err != nil {
			return e, err
		}
		return oracleEntry{Type: "symlink", Target: s.names.Replace(target)}, nil
	case mode&os.ModeNamedPipe != 0:
		e.Type = "fifo"
	default:
		e.Type = "file"
		content, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrPermission) {
			e.Type = "file, unreadable" // the test is not root
			return e, nil
		}
		if err != nil {
			return e, err
		}
		e.describe(content)
	}
	return e, nil
}

func (e *oracleEntry) describe(content []byte) {
	switch {
	case len(content) > 4096:
		sum := sha256.Sum256(content)
		e.Bytes, e.SHA256 = len(content), hex.EncodeToString(sum[:])
	case utf8.Valid(content):
		e.Text = new(string(content))
	default:
		e.Base64 = content
	}
}

// survivors names the processes whose working directory is in the sandbox.
func (s *sandbox) survivors() []string {
	found := []string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cwd, err := os.Readlink(d + "/cwd")
		if err != nil || !strings.HasPrefix(cwd, s.dir) {
			continue
		}
		name, _ := os.ReadFile(d + "/comm")
		found = append(found, strings.TrimSpace(string(name)))
	}
	slices.Sort(found)
	return found
}
