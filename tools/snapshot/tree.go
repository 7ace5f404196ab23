package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Store keeps objects by name, for one folder.
type Store interface {
	// Put stores an object. It may read r again from its beginning.
	Put(ctx context.Context, name string, r io.ReadSeeker) error
	// Get opens an object. Reading it to its end fails if its bytes are not
	// those that were put.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// Delete forgets an object; found is false if there was none.
	Delete(ctx context.Context, name string) (found bool, err error)
}

// Defaults of [Options].
const (
	DefaultMaxFiles = 20_000
	DefaultMaxBytes = 256 << 20
)

// Options of a [Tree]; zero fields have defaults.
type Options struct {
	// MaxFiles is how many files, folders and links a snapshot may have; 0
	// means DefaultMaxFiles.
	MaxFiles int
	// MaxBytes is how much all its files may have; 0 means DefaultMaxBytes.
	MaxBytes int64
	// Exclude are patterns of what is left out, with all that is below it:
	// without a slash they are matched against the name at any depth, otherwise
	// against the path in the folder. * ? and [ ] as in [path.Match]; a slash
	// at the end matches folders only.
	Exclude []string
	// Always is left out as well: a name in the folder itself; "" nothing.
	Always string
	// RenewAfter is the age from which a snapshot is made anew although nothing
	// has changed, and contents are stored again; 0 means never.
	RenewAfter time.Duration
}

// ErrOptions says that a pattern cannot be used.
var ErrOptions = errors.New("snapshot: unusable pattern")

// CapError says that the folder is over a limit. Nothing was stored.
type CapError struct {
	Files, MaxFiles int
	Bytes, MaxBytes int64
}

func (e *CapError) Error() string {
	if e.Files > e.MaxFiles {
		return fmt.Sprintf("snapshot: over the limit of %d files and folders", e.MaxFiles)
	}
	return fmt.Sprintf("snapshot: %d bytes are over the limit of %d", e.Bytes, e.MaxBytes)
}

// Saved is what [Tree.Save] stored.
type Saved struct {
	Manifest string // object
	Files    int    // files and links
	Bytes    int64  // of all files
	Stored   int64  // bytes of contents that were new
}

// Tree is a folder, and what the store has of it. It is safe for use by many
// goroutines.
type Tree struct {
	dir     string
	store   Store
	opts    Options
	exclude []pattern

	mu     sync.Mutex // guards what is below; held during Save and Restore
	epoch  string
	number int       // of the last object that was named
	last   *manifest // nil: there is none
	// lastName is last's object.
	lastName string
	stats    map[string]examined // by path
	lost     []string            // objects of saves that failed
}

// examined is a file as it was when its content was read.
type examined struct {
	stat
	sum string
	// sure says that no later change can have left the stat as it is.
	sure bool
}

// New is a tree of the folder dir, without a snapshot.
func New(dir string, store Store, opts Options) (*Tree, error) {
	opts.MaxFiles = cmp.Or(opts.MaxFiles, DefaultMaxFiles)
	opts.MaxBytes = cmp.Or(opts.MaxBytes, DefaultMaxBytes)
	patterns, err := parsePatterns(opts.Exclude)
	if err != nil {
		return nil, err
	}
	return &Tree{dir: dir, store: store, opts: opts, exclude: patterns, stats: map[string]examined{}}, nil
}

// Begin gives the prefix of the names of objects from now on. Nobody else may
// ever use it for this folder.
func (t *Tree) Begin(epoch string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.epoch, t.number = epoch, 0
}

// Last is the object of the snapshot that the folder was last in step with, ""
// without one.
func (t *Tree) Last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastName
}

// nextName is the name of a new object.
func (t *Tree) nextName() string {
	t.number++
	return objectName(t.epoch, t.number)
}

func objectName(epoch string, number int) string { return epoch + "." + strconv.Itoa(number) }

// splitName takes an object's name apart.
func splitName(object string) (epoch string, number int, ok bool) {
	dot := strings.LastIndexByte(object, '.')
	if dot < 0 {
		return "", 0, false
	}
	number, err := strconv.Atoi(object[dot+1:])
	return object[:dot], number, err == nil
}

// pattern is one of Options.Exclude.
type pattern struct {
	glob    string
	dirOnly bool
	byPath  bool
}

func parsePatterns(list []string) (out []pattern, err error) {
	for _, text := range list {
		p := pattern{glob: strings.TrimSuffix(text, "/"), dirOnly: strings.HasSuffix(text, "/")}
		p.byPath = strings.Contains(p.glob, "/")
		p.glob = strings.TrimPrefix(p.glob, "/")
		if _, bad := path.Match(p.glob, ""); bad != nil || p.glob == "" {
			return nil, fmt.Errorf("%w %q", ErrOptions, text)
		}
		out = append(out, p)
	}
	return out, nil
}

// CheckPatterns is [ErrOptions] if one of the patterns cannot be used.
func CheckPatterns(list []string) error {
	_, err := parsePatterns(list)
	return err
}

// excluded says whether an entry is left out.
func (t *Tree) excluded(p string, isDir bool) bool {
	if p == t.opts.Always {
		return true
	}
	for _, x := range t.exclude {
		subject := path.Base(p)
		if x.byPath {
			subject = p
		}
		if ok, _ := path.Match(x.glob, subject); ok && (isDir || !x.dirOnly) {
			return true
		}
	}
	return false
}
