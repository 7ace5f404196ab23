package snapshot

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"
)

// ErrManifest says that an object is no manifest, or one that cannot be right.
var ErrManifest = errors.New("snapshot: unusable manifest")

// version of the manifest's form.
const version = 1

// maxManifest is the largest manifest, in bytes of JSON.
const maxManifest = 256 << 20

// Kinds of entries.
const (
	kindFile = ""
	kindDir  = "dir"
	kindLink = "link"
)

// manifest is a snapshot: all that is needed to make the folder again.
type manifest struct {
	Version int     `json:"version"`
	Made    int64   `json:"made"`    // since when its oldest pack may be there, Unix seconds
	Entries []entry `json:"entries"` // folders before what is in them
	Packs   []pack  `json:"packs"`
	Blobs   []blob  `json:"blobs"` // by pack and offset
	// Old are objects that neither this snapshot nor a later one needs.
	Old []string `json:"old,omitempty"`
}

// entry is one file, folder or link.
type entry struct {
	Path   name   `json:"path"`
	Kind   string `json:"kind,omitempty"`
	Mode   uint32 `json:"mode,omitempty"`  // permission bits
	Time   int64  `json:"mtime,omitempty"` // of a file, Unix nanoseconds
	Size   int64  `json:"size,omitempty"`
	Sum    string `json:"sha256,omitempty"` // of a file's content, hex
	Target name   `json:"target,omitempty"` // of a link
}

// pack is an object with contents.
type pack struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// blob is one content's place.
type blob struct {
	Sum    string `json:"sha256"`
	Pack   int    `json:"pack"` // in Packs
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
}

// name is a path or a link's target, which need not be UTF-8.
type name string

type rawName struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON gives a string or, for other bytes, {"base64": …}.
func (n name) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return json.Marshal(string(n))
	}
	return json.Marshal(rawName{[]byte(n)})
}

// UnmarshalJSON takes both.
func (n *name) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte("{")) {
		var raw rawName
		err := json.Unmarshal(b, &raw)
		*n = name(raw.Base64)
		return err
	}
	return json.Unmarshal(b, (*string)(n))
}

func (m *manifest) encode() ([]byte, error) {
	var buf bytes.Buffer
	z, err := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(z).Encode(m); err != nil {
		return nil, err
	}
	err = z.Close()
	return buf.Bytes(), err
}

// decode reads a manifest and holds it against the rules that Restore relies
// on.
func decode(r io.Reader) (*manifest, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	m := &manifest{}
	if err := json.NewDecoder(io.LimitReader(z, maxManifest)).Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	// The end of the stream has the checks of both layers.
	if _, err := io.Copy(io.Discard, z); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	return m, nil
}

func (m *manifest) check() error {
	if m.Version != version {
		return fmt.Errorf("version %d, known is %d", m.Version, version)
	}
	sums := map[string]int64{}
	for _, b := range m.Blobs {
		if b.Pack < 0 || b.Pack >= len(m.Packs) || b.Offset < 0 || b.Size < 0 || b.Offset+b.Size > m.Packs[b.Pack].Size {
			return fmt.Errorf("content %.80q is outside of its pack", b.Sum)
		}
		sums[b.Sum] = b.Size
	}
	kinds := map[name]string{".": kindDir}
	for _, e := range m.Entries {
		p := string(e.Path)
		if p == "" || path.IsAbs(p) || path.Clean(p) != p || p == "." || p == ".." || strings.HasPrefix(p, "../") || strings.ContainsRune(p, 0) {
			return fmt.Errorf("path %.200q", p)
		}
		parent := name(path.Dir(p))
		if kind, ok := kinds[parent]; !ok || kind != kindDir {
			return fmt.Errorf("path %.200q is in no folder", p)
		}
		if _, twice := kinds[e.Path]; twice {
			return fmt.Errorf("path %.200q is there twice", p)
		}
		kinds[e.Path] = e.Kind
		if size, ok := sums[e.Sum]; e.Kind == kindFile && e.Size > 0 && (!ok || size != e.Size) {
			return fmt.Errorf("path %.200q has no content", p)
		}
		switch e.Kind {
		case kindFile, kindDir, kindLink:
		default:
			return fmt.Errorf("path %.200q is a %.20q", p, e.Kind)
		}
	}
	return nil
}
