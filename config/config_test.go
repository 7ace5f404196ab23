package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// isolate gives the test a folder of its own and no variables of ours.
func isolate(t *testing.T) string {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "PI_") || strings.HasPrefix(name, "OPENAI_") || name == "NATS_URL" {
			t.Setenv(name, "")
		}
	}
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Chdir(dir)
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, args ...string) (*Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(fs, ForClient|ForWorker)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(fs)
}

func mustLoad(t *testing.T, args ...string) *Config {
	t.Helper()
	cfg, err := load(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func setting(t *testing.T, cfg *Config, key string) Setting {
	t.Helper()
	for _, s := range cfg.Effective() {
		if s.Key == key {
			return s
		}
	}
	t.Fatalf("no setting %s", key)
	return Setting{}
}

func TestLayersInOrder(t *testing.T) {
	isolate(t)
	const key = "nats.ack_wait"
	check := func(want time.Duration, origin string, args ...string) {
		t.Helper()
		cfg := mustLoad(t, args...)
		if got := setting(t, cfg, key); cfg.NATS.AckWait != want || got.Value != short(want) || got.Origin.String() != origin {
			t.Errorf("got %v, %q from %q; want %v from %q", cfg.NATS.AckWait, got.Value, got.Origin, want, origin)
		}
	}
	check(5*time.Second, "default")
	write(t, "pi-worker.yaml", "nats:\n  # a comment\n  ack_wait: 6s\n")
	check(6*time.Second, "file pi-worker.yaml:3")
	t.Setenv("PI_NATS_ACK_WAIT", "7s")
	check(7*time.Second, "env PI_NATS_ACK_WAIT")
	check(8*time.Second, "flag --ack-wait", "--ack-wait", "8s")
}

func TestFileIsFoundInOrder(t *testing.T) {
	dir := isolate(t)
	find := func(want string, args ...string) {
		t.Helper()
		if cfg := mustLoad(t, args...); cfg.Worker.ID != want {
			t.Errorf("worker.id is %q from %q, want %q", cfg.Worker.ID, cfg.File(), want)
		}
	}
	find("")
	write(t, dir+"/.config/pi-worker/config.yaml", "worker: {id: home}")
	find("home")
	t.Setenv("XDG_CONFIG_HOME", dir+"/xdg")
	find("")
	write(t, dir+"/xdg/pi-worker/config.yaml", "worker: {id: xdg}")
	find("xdg")
	write(t, dir+"/pi-worker.yaml", "worker: {id: local}")
	find("local")
	write(t, dir+"/env.yaml", "worker: {id: env}")
	t.Setenv("PI_CONFIG", dir+"/env.yaml")
	find("env")
	write(t, dir+"/flag.yaml", "worker: {id: flag}")
	find("flag", "--config", dir+"/flag.yaml")
}

func TestNamedFileMustExist(t *testing.T) {
	isolate(t)
	_, err := load(t, "--config", "absent.yaml")
	want := `config: config: "absent.yaml": no such file or directory (from flag --config)`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestEmptyFileIsNoError(t *testing.T) {
	isolate(t)
	for _, text := range []string{"", "# nothing\n", "---\n", "nats:\nagents:\n  coder:\n"} {
		write(t, "pi-worker.yaml", text)
		if _, err := load(t); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestUnknownKeysNameTheNearest(t *testing.T) {
	for _, c := range []struct{ yaml, key, near string }{
		{"nats: {ulr: x}", "nats.ulr", "nats.url"},
		{"nat: {url: x}", "nat", "nats"},
		{"ephemeral_tl: 1h", "ephemeral_tl", "ephemeral_ttl"},
		{"worker: {url: x}", "worker.url", "nats.url"},
		{"agents: {coder: {modle: x}}", "agents.coder.modle", "agents.coder.model"},
		{"agents: {coder: {limits: {turn: 1}}}", "agents.coder.limits.turn", "agents.coder.limits.turns"},
		{"defaults: {baseurl: x}", "defaults.baseurl", "defaults.base_url"},
		{"agent: {}", "agent", "agents"},
		{"model: x", "model", ""},
		{"zzzzzzzzzzzzzzz: 1", "zzzzzzzzzzzzzzz", ""},
	} {
		t.Run(c.key, func(t *testing.T) {
			isolate(t)
			write(t, "pi-worker.yaml", c.yaml)
			_, err := load(t)
			ke, ok := errors.AsType[*KeyError](err)
			if !ok || !errors.Is(err, ErrUnknownKey) || ke.Key != c.key || c.near != "" && ke.Allowed != c.near {
				t.Errorf("got %v, want %s with %q", err, c.key, c.near)
			}
		})
	}
}

func TestUnknownVariables(t *testing.T) {
	isolate(t)
	write(t, "pi-worker.yaml", "agents: {my-coder: {}}")
	// Kubernetes sets these for a service called pi-worker; pi has some too.
	t.Setenv("PI_WORKER_PORT", "tcp://10.0.0.1:80")
	t.Setenv("PI_WORKER_SERVICE_HOST", "10.0.0.1")
	t.Setenv("PI_WORKER_SERVICE_PORT_HTTP", "80")
	t.Setenv("PI_WORKER_PORT_80_TCP_ADDR", "10.0.0.1")
	t.Setenv("PI_CODING_AGENT_DIR", "/x")
	t.Setenv("PI_AGENTS_MY_CODER_MODEL", "m")
	if cfg := mustLoad(t); cfg.Agents["my-coder"].Model != "m" {
		t.Errorf("model is %q", cfg.Agents["my-coder"].Model)
	}
	t.Setenv("PI_WORKER_SESSION", "3")
	_, err := load(t)
	if !errors.Is(err, ErrUnknownKey) || !strings.Contains(err.Error(), "did you mean PI_WORKER_SESSIONS?") {
		t.Errorf("got %v", err)
	}
}

func TestEveryErrorAtOnce(t *testing.T) {
	isolate(t)
	write(t, "pi-worker.yaml", `nats:
  url: localhost
  replicas: 2
worker:
  sessions: many
ephemeral_ttl: 30
colour: red
agents:
  coder: {api: chat, temperature: 3}
`)
	t.Setenv("PI_LOG_LEVEL", "loud")
	_, err := load(t, "--grace", "soon")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`config: nats.url: "localhost": value is not allowed (from file pi-worker.yaml:2); want a URL that begins with nats://, tls://, ws://, wss://`,
		`config: nats.replicas: "2": value is not allowed (from file pi-worker.yaml:3); want one of 1, 3, 5`,
		`config: worker.sessions: "many": value is not allowed (from file pi-worker.yaml:5); want a whole number from 1 to 100000`,
		`config: ephemeral_ttl: "30": value is not allowed (from file pi-worker.yaml:6); want 0, or a duration from 1s to 876000h`,
		`config: colour: no such key (from file pi-worker.yaml:7)`,
		`config: agents.coder.api: "chat": value is not allowed (from file pi-worker.yaml:9); want one of completions, responses`,
		`config: agents.coder.temperature: "3": value is not allowed (from file pi-worker.yaml:9); want a number from 0 to 2`,
		`config: log.level: "loud": value is not allowed (from env PI_LOG_LEVEL); want one of debug, info, warn, error`,
		`config: worker.grace: "soon": value is not allowed (from flag --grace); want a duration from 0s to 24h, such as 1m30s`,
	} {
		if !strings.Contains(err.Error()+"\n", want+"\n") {
			t.Errorf("missing: %s", want)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 9 {
		t.Errorf("%d errors, want 9:\n%v", n, err)
	}
}

func TestADefaultsErrorIsReportedOnce(t *testing.T) {
	isolate(t)
	write(t, "pi-worker.yaml", "defaults: {api: chat}\nagents: {a: {}, b: {}}")
	_, err := load(t)
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "defaults.api") {
		t.Errorf("got %v", err)
	}
}

func TestBrokenFilesGiveOneSentence(t *testing.T) {
	for _, text := range []string{"a: [", "- a\n- b\n", "nats: 3", "nats: [1]", "agents: {coder: gpt}", "agents: {a.b: {}}", "log: {level: info, level: warn}", "\x00", "nats: &n {<<: *n}", "agents: &a {b: *a}"} {
		t.Run(text, func(t *testing.T) {
			isolate(t)
			write(t, "pi-worker.yaml", text)
			if _, err := load(t); err == nil || !strings.HasPrefix(err.Error(), "config: ") {
				t.Errorf("got %v", err)
			}
		})
	}
}

const planted = "pl4nted-s3cret"

func TestSecretsAreNeverShown(t *testing.T) {
	isolate(t)
	write(t, "pi-worker.yaml", `
nats: {url: "nats://joe:`+planted+`@localhost:4222,nats://`+planted+`@h:1", user: joe, password: `+planted+`}
agents:
  coder:
    headers: {X-Key: `+planted+`}
`)
	cfg := mustLoad(t)
	var logged strings.Builder
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "cfg", cfg, "password", cfg.NATS.Password)
	out, err := json.Marshal(map[string]any{"p": cfg.NATS.Password, "h": cfg.Agents["coder"].Headers, "e": cfg.Effective()})
	if err != nil {
		t.Fatal(err)
	}
	shown := logged.String() + fmt.Sprintf("%v %+v %#v %v %#v %v %+v %#v %s %s", cfg.NATS.URL, cfg.NATS.URL, cfg.NATS, cfg, cfg, cfg.NATS.Password, cfg.Agents["coder"].Headers, cfg.NATS.Password, out, cfg.Effective())
	if strings.Contains(shown, planted) {
		t.Errorf("shown: %s", shown)
	}
	if cfg.NATS.Password.Reveal() != planted || !strings.Contains(cfg.NATS.URL.Reveal(), planted) || cfg.Agents["coder"].Headers["x-key"].Reveal() != planted {
		t.Error("the secrets themselves are lost")
	}
	if s := setting(t, cfg, "nats.password"); s.Value != "***" {
		t.Errorf("password is shown as %q", s.Value)
	}
}

func TestErrorsHoldNoSecrets(t *testing.T) {
	for _, text := range []string{
		"nats: {url: 'http://joe:" + planted + "@localhost'}",
		"nats: {url: 'nats://joe:" + planted + "/ %zz@localhost'}",
		"nats: {url: '" + planted + "@localhost'}",
		"nats: {passwort: " + planted + "}",
		"nats: {password: [" + planted + "]}",
		"nats: {password: " + planted + "}",
		"nats: {user: a, password: " + planted + ", token: " + planted + "}",
		"agents: {coder: {api_key: " + planted + "}}",
		"agents: {coder: {api_key_env: " + planted + "}}",
		"agents: {coder: {base_url: 'http://" + planted + "@x'}}",
		"agents: {coder: {headers: {a: [" + planted + "]}}}",
		"agents: {coder: {headers: " + planted + "}}",
		planted,
		"nats: {password: " + planted,
		"nats: {token: " + planted + ", token: " + planted + "}",
	} {
		isolate(t)
		write(t, "pi-worker.yaml", text)
		_, err := load(t)
		if err == nil || strings.Contains(err.Error(), planted) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

func TestMaskURL(t *testing.T) {
	for in, want := range map[string]string{
		"nats://h:4222":               "nats://h:4222",
		"nats://u:p@h:4222":           "nats://***@h:4222",
		"nats://t@h,nats://u:p@i":     "nats://***@h,nats://***@i",
		"u:p@h":                       "***@h",
		"nats://u:p/q@h":              "nats://***@h",
		"https://h/v1?x=1":            "https://h/v1?x=1",
		"nats://u:a,b@h":              "nats://***@h",
		"http://[::1]:8080/v1":        "http://[::1]:8080/v1",
		"nats://u:p%ZZ@h/x, nats://i": "nats://***@h/x, nats://i",
	} {
		if got := MaskURL(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestConflicts(t *testing.T) {
	for text, want := range map[string]string{
		"nats: {creds: a, token: b}":                              "only one of nats.creds, nats.token",
		"nats: {password: b}":                                     "nats.user with it",
		"nats: {tls: {cert: a}}":                                  "nats.tls.cert and nats.tls.key together",
		"worker: {workspace: {mode: dir}}":                        "worker.workspace.dir with mode dir",
		"defaults: {system_prompt: a, system_prompt_file: b}":     "either this or system_prompt",
		"agents: {a: {reasoning: high, max_reasoning: low}}":      "at most max_reasoning, low",
		"agents: {a: {system_prompt_file: /does/not/exist/here}}": "no such file",
	} {
		isolate(t)
		write(t, "pi-worker.yaml", text)
		if _, err := load(t); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestWorkspaceFlagMeansModeDir(t *testing.T) {
	isolate(t)
	cfg := mustLoad(t, "--workspace", "/srv")
	if w := cfg.Worker.Workspace; w.Mode != "dir" || w.Dir != "/srv" || setting(t, cfg, "worker.workspace.mode").Value != "dir" {
		t.Errorf("got %+v", w)
	}
}

func TestValuesOfEachKind(t *testing.T) {
	isolate(t)
	write(t, "pi-worker.yaml", `
max_input_bytes: 2 MiB
retention: {max_bytes: 10GB, max_age: 0}
defaults:
  tools: []
  temperature: 0
  retry: {mid_stream: off}
  compat: {supports_store: false}
  headers: {a: b}
agents:
  coder: &coder {tools: [bash, read], max_tokens: 12}
  other: {<<: *coder, temperature: 0.5}
`)
	t.Setenv("PI_AGENTS_OTHER_TOOLS", "ls, grep")
	t.Setenv("PI_AGENTS_OTHER_HEADERS", "X-A=1=2,X-B=3")
	cfg := mustLoad(t)
	c, o := cfg.Agents["coder"], cfg.Agents["other"]
	for _, x := range []struct{ got, want any }{
		{cfg.MaxInputBytes, Bytes(2 << 20)},
		{cfg.MaxInputBytes.String(), "2MiB"},
		{cfg.Retention.MaxBytes, Bytes(10e9)},
		{cfg.Retention.MaxAge, time.Duration(0)},
		{cfg.Defaults.Tools, []string{}},
		{*cfg.Defaults.Temperature, 0.0},
		{cfg.Defaults.Retry.MidStream, false},
		{*cfg.Defaults.Compat.SupportsStore, false},
		{c.Compat.SupportsDeveloperRole, (*bool)(nil)},
		{c.Tools, []string{"bash", "read"}},
		{o.Tools, []string{"ls", "grep"}},
		{o.MaxTokens, int64(12)},
		{*o.Temperature, 0.5},
		{*c.Temperature, 0.0},
		{o.Headers, map[string]Secret{"X-A": "1=2", "X-B": "3"}},
		{c.Headers, map[string]Secret{"a": "b"}},
	} {
		if !reflect.DeepEqual(x.got, x.want) {
			t.Errorf("got %#v, want %#v", x.got, x.want)
		}
	}
	if s := setting(t, cfg, "agents.coder.temperature"); s.Origin.String() != "file pi-worker.yaml:6 by defaults.temperature" {
		t.Errorf("origin is %q", s.Origin)
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[any]Bytes{"0": 0, "12": 12, "1KiB": 1024, "1 kb": 1000, "3GiB": 3 << 30, 7: 7, "5B": 5} {
		if got, err := size(in); err != nil || got != want {
			t.Errorf("%v: got %v, %v", in, got, err)
		}
	}
	for _, in := range []any{"", "B", "-1", -1, "1.5MiB", "9999999999TiB", "1XiB", true, nil} {
		if got, err := size(in); err == nil {
			t.Errorf("%v: got %v", in, got)
		}
	}
}

// Every field is reached by a key: a field that no key fills would be a
// setting that does nothing.
func TestEveryFieldHasAKey(t *testing.T) {
	var c Config
	reached := map[uintptr]bool{}
	for _, k := range keys {
		reached[reflect.ValueOf(k.field(&c)).Pointer()] = true
	}
	for _, k := range profileKeys {
		reached[reflect.ValueOf(k.field(&c.Defaults)).Pointer()] = true
	}
	if len(reached) != len(keys)+len(profileKeys) {
		t.Errorf("%d keys fill %d fields", len(keys)+len(profileKeys), len(reached))
	}
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			f, name := v.Field(i), path+"."+v.Type().Field(i).Name
			switch {
			case !v.Type().Field(i).IsExported(), name == ".Agents", name == ".Defaults.Name":
			case f.Kind() == reflect.Struct && !reached[f.Addr().Pointer()] || f.Kind() == reflect.Struct && f.NumField() > 0:
				walk(f, name)
			case !reached[f.Addr().Pointer()]:
				t.Errorf("%s has no key", name)
			}
		}
	}
	walk(reflect.ValueOf(&c).Elem(), "")
}

func TestDefaultsAreAllowed(t *testing.T) {
	isolate(t)
	cfg := mustLoad(t)
	if len(cfg.Agents) != 1 || cfg.Agents[DefaultAgent].Name != DefaultAgent {
		t.Errorf("agents are %v", cfg.Agents)
	}
	if n := len(cfg.Effective()); n != len(keys)+2*len(profileKeys) {
		t.Errorf("%d settings", n)
	}
	if _, err := Load(nil); err != nil {
		t.Error(err)
	}
}

func TestNATSURLVariableCounts(t *testing.T) {
	isolate(t)
	t.Setenv("NATS_URL", "nats://a:1")
	if got := mustLoad(t).NATS.URL.Reveal(); got != "nats://a:1" {
		t.Errorf("got %s", got)
	}
	t.Setenv("PI_NATS_URL", "nats://b:1")
	if got := mustLoad(t).NATS.URL.Reveal(); got != "nats://b:1" {
		t.Errorf("got %s", got)
	}
	if got := mustLoad(t, "-s", "nats://c:1").NATS.URL.Reveal(); got != "nats://c:1" {
		t.Errorf("got %s", got)
	}
}

// Whatever the file holds, Load ends, and says what is wrong in sentences.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"", "nats: {url: 'nats://a@b'}", "agents: {a: &a {tools: [x]}, b: {<<: *a}}", "defaults: {headers: {a: b}}",
		"agents: {? [a] : b}", "1: 2", "nats: {? {a: b} : c}", "a: *b", "agents: {a: {<<: [*a]}}", "max_input_bytes: 1e9", "nats: !!binary x",
		"log: !x {level: info}", "ephemeral_ttl: 2020-01-01", "agents: {a: {temperature: .nan}}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "pi-worker.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		AddFlags(fs, ForWorker)
		if err := fs.Parse([]string{"--config", path}); err != nil {
			t.Fatal(err)
		}
		cfg, err := Load(fs)
		if (cfg == nil) == (err == nil) {
			t.Fatalf("got %v and %v", cfg, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "config: ") {
			t.Fatal(err)
		}
	})
}
