package looptest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// exchange is one recorded request with its answer, a file of a recording.
type exchange struct {
	Path    string          `json:"path"` // as asked, below the base URL's
	Request json.RawMessage `json:"request"`
	// Status, ContentType and Body are the answer's. A body that broke off is
	// kept as far as it came; Cut says so.
	Status      int    `json:"status"`
	ContentType string `json:"contentType"`
	Body        string `json:"body"`
	Cut         bool   `json:"cut,omitempty"`
}

// Recorder is a proxy in front of a model's endpoint that keeps each request
// and answer in a folder, for [OpenRecording] to replay. Headers are not kept,
// and so no key is. It is safe for use by several goroutines.
//
//	rec, err := looptest.NewRecorder("testdata/session", "https://api.openai.com/v1")
//	server := httptest.NewServer(rec)
//	model, err := openai.New(openai.Config{BaseURL: server.URL, APIKey: os.Getenv("OPENAI_API_KEY")})
type Recorder struct {
	dir   string
	proxy *httputil.ReverseProxy

	mu    sync.Mutex
	count int
	err   error
}

// NewRecorder makes a recorder that writes to dir, which is made if it is not
// there and must be empty otherwise, and asks the endpoint at baseURL.
func NewRecorder(dir, baseURL string) (*Recorder, error) {
	target, err := url.Parse(baseURL)
	if err != nil || target.Host == "" {
		return nil, fmt.Errorf("looptest: base URL %q is none", baseURL)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	old, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if len(old) > 0 {
		return nil, fmt.Errorf("looptest: %s is not empty: a recording is made anew, not added to", dir)
	}
	r := &Recorder{dir: dir}
	r.proxy = &httputil.ReverseProxy{
		FlushInterval:  -1, // each piece at once, as the endpoint sends it
		Rewrite:        func(p *httputil.ProxyRequest) { p.SetURL(target); p.Out.Header.Del("Accept-Encoding") },
		ModifyResponse: r.keep,
	}
	return r, nil
}

// ServeHTTP passes the request on.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(io.LimitReader(hr.Body, maxRequestBody))
	if err != nil {
		return // the client went away
	}
	hr.Body = io.NopCloser(bytes.NewReader(body))
	hr.ContentLength = int64(len(body))
	ex := &exchange{Path: hr.URL.RequestURI(), Request: json.RawMessage(body)}
	r.proxy.ServeHTTP(w, hr.WithContext(withExchange(hr.Context(), ex)))
}

// keep writes the exchange when the answer's body has been read.
func (r *Recorder) keep(resp *http.Response) error {
	ex := exchangeOf(resp.Request.Context())
	ex.Status, ex.ContentType = resp.StatusCode, resp.Header.Get("Content-Type")
	r.mu.Lock()
	r.count++
	name := fmt.Sprintf("%04d.json", r.count)
	r.mu.Unlock()
	resp.Body = &recordingBody{ReadCloser: resp.Body, done: func(body []byte, cut bool) {
		ex.Body, ex.Cut = string(body), cut
		r.write(name, ex)
	}}
	return nil
}

func (r *Recorder) write(name string, ex *exchange) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(ex)
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, name), b.Bytes(), 0o644)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
}

// Err is what went wrong with writing so far.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// recordingBody keeps what is read through it, and says once that it is over.
type recordingBody struct {
	io.ReadCloser
	seen bytes.Buffer
	done func(body []byte, cut bool)
	over bool
}

func (b *recordingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.seen.Write(p[:n])
	if err != nil {
		b.end(!errors.Is(err, io.EOF))
	}
	return n, err
}

func (b *recordingBody) Close() error {
	b.end(true)
	return b.ReadCloser.Close()
}

func (b *recordingBody) end(cut bool) {
	if !b.over {
		b.over = true
		b.done(b.seen.Bytes(), cut)
	}
}

// Recording answers requests with what a [Recorder] kept, by the request's
// content: its path and its JSON, whatever the order of an object's members
// and the white space. A request that was recorded several times gets its
// answers in their order. It is safe for use by several goroutines.
type Recording struct {
	ignore map[string]bool

	mu     sync.Mutex
	all    []*exchange
	byKey  map[string][]*exchange
	misses []string
}

// OpenRecording reads the recording in dir. The request's members named in
// ignore, at its top, are not compared: those that differ by the run, such as
// "prompt_cache_key".
//
//	rec, err := looptest.OpenRecording("testdata/session")
//	script := looptest.NewScript()
//	script.Otherwise(rec.Answer)
//	…
//	if err := rec.Err(); err != nil { // what was asked and not recorded, or not asked
//		t.Error(err)
//	}
func OpenRecording(dir string, ignore ...string) (*Recording, error) {
	r := &Recording{ignore: map[string]bool{}, byKey: map[string][]*exchange{}}
	for _, name := range ignore {
		r.ignore[name] = true
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json")) // in the order of their names
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("looptest: %s holds no recording", dir))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		ex := &exchange{}
		if err := json.Unmarshal(text, ex); err != nil {
			return nil, fmt.Errorf("looptest: %s: %w", file, err)
		}
		key, _ := r.key(ex.Path, ex.Request)
		r.all = append(r.all, ex)
		r.byKey[key] = append(r.byKey[key], ex)
	}
	return r, nil
}

// Answer is an [AnswerFunc]: the recorded answer, or status 599 with what the
// request has that the nearest recorded one has not.
func (r *Recording) Answer(req *Request) Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := strings.TrimPrefix(req.Path, "/v1")
	key, asked := r.key(path, req.Body)
	if left := r.byKey[key]; len(left) > 0 {
		r.byKey[key] = left[1:]
		return left[0].answer()
	}
	miss := fmt.Sprintf("looptest: request %d (%s) was not recorded; %s", req.Number, path, r.nearest(path, asked))
	r.misses = append(r.misses, miss)
	text, _ := json.Marshal(miss)
	return &Response{Status: 599, Body: text}
}

func (ex *exchange) answer() *Response {
	resp := &Response{Status: ex.Status, Headers: map[string]string{"Content-Type": ex.ContentType}, Chunks: []Chunk{{Raw: &ex.Body}}}
	if ex.Cut {
		resp.Chunks = append(resp.Chunks, Chunk{Cut: true})
	}
	return resp
}

// Err lists the requests that were not recorded, and how many recorded ones
// were never asked; nil if there are none of both.
func (r *Recording) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, miss := range r.misses {
		errs = append(errs, errors.New(miss))
	}
	left := 0
	for _, exchanges := range r.byKey {
		left += len(exchanges)
	}
	if left > 0 {
		errs = append(errs, fmt.Errorf("looptest: %d of %d recorded requests were never asked", left, len(r.all)))
	}
	return errors.Join(errs...)
}

// key renders what is compared; a body that is not JSON counts as it is.
func (r *Recording) key(path string, body json.RawMessage) (string, any) {
	path = strings.TrimPrefix(path, "/v1")
	var v any
	text := []byte(body)
	if json.Unmarshal(body, &v) == nil {
		if o, ok := v.(map[string]any); ok {
			for name := range r.ignore {
				delete(o, name)
			}
		}
		text, _ = json.Marshal(v) // sorts members
	}
	sum := sha256.Sum256(append([]byte(path+"\n"), text...))
	return hex.EncodeToString(sum[:]), v
}

// nearest names the recorded request with the fewest differences.
func (r *Recording) nearest(path string, asked any) string {
	best, number := []string(nil), 0
	for i, ex := range r.all {
		_, recorded := r.key(ex.Path, ex.Request)
		var found []string
		if at := strings.TrimPrefix(ex.Path, "/v1"); at != path {
			found = append(found, fmt.Sprintf("path: recorded %s, asked %s", at, path))
		}
		found = differences(found, "", recorded, asked)
		if number == 0 || len(found) < len(best) {
			best, number = found, i+1
		}
	}
	if len(best) == 0 {
		return fmt.Sprintf("it is that of file %04d.json, which has been answered as often as it was recorded", number)
	}
	const most = 10
	more := ""
	if len(best) > most {
		more = fmt.Sprintf("\n  and %d more", len(best)-most)
		best = best[:most]
	}
	return fmt.Sprintf("the nearest is %04d.json:\n  %s%s", number, strings.Join(best, "\n  "), more)
}
