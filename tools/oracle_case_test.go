package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// oracleCase is one case of the oracle; see its FORMAT.md. Unknown fields are
// refused.
type oracleCase struct {
	Case   string
	Tool   string
	Shows  string
	Advice string
	Note   string

	Files      []oracleFile
	Args       json.RawMessage
	Calls      []json.RawMessage
	Parallel   bool
	Cwd        string
	ProcessCwd string
	Env        map[string]string
	Options    struct {
		AutoResizeImages *bool
		CommandPrefix    string
		ShellPath        string
	}
	ModelInput []string
	Abort      *struct {
		Before  bool
		AfterMs int
	}
	RunAs                string
	RemoveWorkspaceFirst bool
	Isolate              bool
	Record               struct{ Files, Survivors, Updates, TmpEntries bool }
	Compare              oracleCompare
}

type oracleCompare struct {
	Text   string
	Subset *struct {
		Regex string
		Count int
	}
	Contains []string
	Image    string
	MinMs    int
	MaxMs    int
}

type oracleFile struct {
	Root        string
	Path        string
	PathBase64  []byte
	Text        *string
	Base64      []byte
	Parts       []oraclePart
	Dir         bool
	Symlink     string
	Fifo        bool
	Mode        string
	RepeatFiles *oracleRange
}

type oracleRange struct{ From, To, Width int }

type oraclePart struct {
	Text     *string
	Repeat   *int
	Numbered *string
	From     int
	To       int
	Width    int
}

func (r oracleRange) number(n int) string { return fmt.Sprintf("%0*d", r.Width, n) }

// expand joins parts.
func expand(parts []oraclePart) (string, error) {
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p.Text != nil:
			n := 1
			if p.Repeat != nil {
				n = *p.Repeat
			}
			b.WriteString(strings.Repeat(*p.Text, n))
		case p.Numbered != nil:
			r := oracleRange{p.From, p.To, p.Width}
			for i := p.From; i <= p.To; i++ {
				b.WriteString(strings.ReplaceAll(*p.Numbered, "{n}", r.number(i)))
			}
		default:
			return "", fmt.Errorf("part without text")
		}
	}
	return b.String(), nil
}

// expandArgs replaces every {"$parts": …} and the placeholders in args.path.
func expandArgs(raw json.RawMessage, places *strings.Replacer) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	v, err := expandValue(v)
	if err != nil {
		return nil, err
	}
	if m, ok := v.(map[string]any); ok {
		if p, ok := m["path"].(string); ok {
			m["path"] = places.Replace(p)
		}
	}
	return mustJSON(v), nil
}

func expandValue(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case []any:
		for i := range v {
			if v[i], err = expandValue(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		if p, ok := v["$parts"]; ok {
			var parts []oraclePart
			if err := decodeStrict(mustJSON(p), &parts); err != nil {
				return nil, err
			}
			return expand(parts)
		}
		for k := range v {
			if v[k], err = expandValue(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func decodeStrict(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// oracleResult is what a tool did, in the oracle's form.
type oracleResult struct {
	Case string `json:"case,omitempty"`
	Tool string `json:"tool,omitempty"`

	IsError       bool                   `json:"isError"`
	Content       []oracleBlock          `json:"content"`
	Details       json.RawMessage        `json:"details"`
	ErrorStage    string                 `json:"errorStage,omitempty"`
	ThrownMessage string                 `json:"thrownMessage,omitempty"`
	ErrorCode     string                 `json:"errorCode,omitempty"`
	EffectiveArgs json.RawMessage        `json:"effectiveArgs,omitempty"`
	FullOutput    *oracleEntry           `json:"fullOutputFile,omitempty"`
	Images        []oracleImage          `json:"images,omitempty"`
	Results       []oracleResult         `json:"results,omitempty"`
	FilesAfter    map[string]oracleEntry `json:"filesAfter,omitempty"`
	Survivors     *[]string              `json:"survivors,omitempty"`
	Updates       *oracleUpdates         `json:"updates,omitempty"`
	TmpEntries    []string               `json:"tmpEntries,omitempty"`

	HostProcessCrashed bool   `json:"hostProcessCrashed,omitempty"`
	HostProcessHung    bool   `json:"hostProcessHung,omitempty"`
	CrashMessage       string `json:"crashMessage,omitempty"`
}

type oracleBlock struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	Data     string `json:"data,omitempty"`
	MIMEType string `json:"mimeType,omitempty"`
}

type oracleImage struct {
	MIMEType   string  `json:"mimeType"`
	Width      int     `json:"width"`
	Height     int     `json:"height"`
	EqualsFile *string `json:"equalsFile"`
}

type oracleEntry struct {
	Type   string  `json:"type,omitempty"`
	Mode   string  `json:"mode,omitempty"`
	Text   *string `json:"text,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
	Bytes  int     `json:"bytes,omitempty"`
	SHA256 string  `json:"sha256,omitempty"`
	Target string  `json:"target,omitempty"`
}

type oracleUpdates struct {
	First oracleUpdate `json:"first"`
	Last  oracleUpdate `json:"last"`
}

type oracleUpdate struct {
	Content []oracleBlock   `json:"content"`
	Details json.RawMessage `json:"details"`
}

// text is the result's only text.
func (r *oracleResult) text() string {
	var b strings.Builder
	for _, block := range r.Content {
		b.WriteString(block.Text)
	}
	return b.String()
}
