package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Load reads all layers and checks them. The flag set is that of [AddFlags],
// parsed; nil means that there are no flags. The error joins a [*KeyError]
// for each trouble and holds no secret; with an error there is no Config.
func Load(flags *pflag.FlagSet) (*Config, error) {
	l := &loader{v: viper.New(), flags: flags, envs: map[string]string{}}
	named := ""
	if f := l.flag(configFlag); f != nil {
		named = f.Value.String()
	}
	path, origin := findFile(named)
	var err error
	if l.file, err = readFile(path, origin); err != nil {
		l.errs = append(l.errs, err)
	}
	l.v.SetConfigType("yaml")
	if err := l.v.ReadConfig(bytes.NewReader(l.file.data)); err != nil {
		return nil, fmt.Errorf("config: reading %s: %w", path, err)
	}
	cfg := l.config()
	l.errs = append(l.errs, unknownEnv(l.envs)...)
	if err := errors.Join(l.errs...); err != nil {
		return nil, err
	}
	return cfg, nil
}

type loader struct {
	v     *viper.Viper
	flags *pflag.FlagSet
	file  *file
	envs  map[string]string // key by variable
	errs  []error
}

// resolved is one key's value before it is parsed.
type resolved struct {
	raw    any // nil: nothing was written and there is no default
	origin Origin
}

// slot is a key at its full name.
type slot struct {
	name, def, flag string
	envs            []string // the first one is the key's own
}

func (l *loader) config() *Config {
	cfg := &Config{Agents: map[string]Profile{}, file: l.file.path}
	origins := map[string]Origin{}
	for _, k := range keys {
		r := l.resolve(slot{k.name, k.def, k.flag, append([]string{envName(k.name)}, k.alt...)})
		cfg.settings = append(cfg.settings, decode(l, k, k.name, cfg, r))
		origins[k.name] = r.origin
	}
	base := map[string]resolved{}
	for _, k := range profileKeys {
		name := "defaults." + k.name
		base[k.name] = l.resolve(slot{name, k.def, "", []string{envName(name)}})
		cfg.settings = append(cfg.settings, decode(l, k, name, &cfg.Defaults, base[k.name]))
	}
	l.checkProfile("defaults", &cfg.Defaults, base)
	names := slices.DeleteFunc(sorted(l.file.agents), func(s string) bool { return s == DefaultAgent })
	for _, name := range append([]string{DefaultAgent}, slices.Compact(names)...) {
		p := Profile{Name: name}
		cfg.settings = append(cfg.settings, l.profile(&p, base)...)
		cfg.Agents[name] = p
	}
	l.checkNATS(cfg, origins)
	l.checkWorkspace(cfg, origins)
	return cfg
}

// profile fills one profile, from its own keys and from the defaults.
func (l *loader) profile(p *Profile, base map[string]resolved) []Setting {
	own := map[string]resolved{}
	for _, k := range profileKeys {
		s := slot{name: "agents." + p.Name + "." + k.name}
		s.envs = []string{envName(s.name)}
		if p.Name == DefaultAgent {
			s.flag = k.flag
			if k.name == "base_url" {
				s.envs = append(s.envs, "OPENAI_BASE_URL")
			}
		}
		own[k.name] = l.resolve(s)
	}
	// One's own endpoint gets no key of another's; one's own prompt replaces
	// the other whether text or file.
	keepKey := p.Name == DefaultAgent || own["base_url"].raw == nil
	ownKey := own["api_key_env"].raw != nil || own["api_key_file"].raw != nil
	ownPrompt := own["system_prompt"].raw != nil || own["system_prompt_file"].raw != nil
	var out []Setting
	for _, k := range profileKeys {
		r := own[k.name]
		inherit := r.raw == nil
		switch k.name {
		case "api_key_env", "api_key_file":
			inherit = inherit && keepKey && !ownKey
		case "headers":
			inherit = inherit && keepKey
		case "system_prompt", "system_prompt_file":
			inherit = inherit && !ownPrompt
		}
		if inherit {
			r = base[k.name]
			if r.origin.Layer != FromDefault {
				r.origin.Inherited = "defaults." + k.name
			}
		}
		own[k.name] = r
		// What the defaults have wrong has been reported there.
		quiet := &loader{}
		if !inherit {
			quiet = l
		}
		out = append(out, decode(quiet, k, "agents."+p.Name+"."+k.name, p, r))
	}
	l.checkProfile("agents."+p.Name, p, own)
	return out
}

// resolve finds the layer that counts and the value that viper has for it.
func (l *loader) resolve(s slot) resolved {
	if s.def != "" {
		l.v.SetDefault(s.name, s.def)
	}
	_ = l.v.BindEnv(append([]string{s.name}, s.envs...)...) // errs only without a name
	for _, env := range s.envs {
		l.envs[env] = s.name
	}
	f := l.flag(s.flag)
	if f != nil {
		_ = l.v.BindPFlag(s.name, f) // errs only for nil
	}
	r := resolved{raw: l.v.Get(s.name), origin: Origin{Layer: FromDefault}}
	switch env := firstSet(s.envs); {
	case f != nil && f.Changed:
		r.origin = Origin{Layer: FromFlag, Where: "--" + f.Name}
	case env != "":
		r.origin = Origin{Layer: FromEnv, Where: env}
	case l.file.lines[s.name] != 0 && l.v.InConfig(s.name):
		r.origin = Origin{Layer: FromFile, Where: fmt.Sprintf("%s:%d", l.file.path, l.file.lines[s.name])}
	case s.def == "":
		r.raw = nil // the empty text of a flag that was not given
	}
	return r
}

func (l *loader) flag(name string) *pflag.Flag {
	if l.flags == nil || name == "" {
		return nil
	}
	return l.flags.Lookup(name)
}

func firstSet(envs []string) string {
	for _, env := range envs {
		if os.Getenv(env) != "" {
			return env
		}
	}
	return ""
}

// decode parses and checks one value, puts it into its field, and notes what
// is wrong with it.
func decode[T any](l *loader, k key[T], name string, into *T, r resolved) Setting {
	field := k.field(into)
	if r.raw != nil {
		v, err := assign(field, r.raw)
		if err != nil || k.check.ok != nil && !k.check.ok(v) {
			l.errs = append(l.errs, &KeyError{Key: name, Value: showRaw(field, r.raw, k.sensitive), Allowed: k.allowed(field), Origin: r.origin, Err: ErrValue})
		}
	}
	return Setting{Key: name, Value: show(field, k.sensitive), Origin: r.origin}
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// checkProfile checks what concerns several keys of a profile, and reads its
// system prompt.
func (l *loader) checkProfile(name string, p *Profile, from map[string]resolved) {
	file := from["system_prompt_file"]
	switch {
	case p.SystemPromptFile == "":
	case p.SystemPrompt != "":
		l.conflict(name+".system_prompt_file", file.origin, "either this or system_prompt")
	default:
		b, err := os.ReadFile(p.SystemPromptFile)
		if err != nil && file.origin.Inherited == "" {
			l.errs = append(l.errs, &KeyError{Key: name + ".system_prompt_file", Value: p.SystemPromptFile, Origin: file.origin, Err: reason(err)})
		}
		p.SystemPrompt = strings.TrimRight(string(b), "\n")
	}
	if slices.Index(reasoningLevels, p.Reasoning) <= slices.Index(reasoningLevels, p.MaxReasoning) {
		return
	}
	if from["max_reasoning"].origin.Layer != FromDefault {
		l.conflict(name+".reasoning", from["reasoning"].origin, "at most max_reasoning, "+p.MaxReasoning)
		return
	}
	p.MaxReasoning = p.Reasoning
}

func (l *loader) checkNATS(cfg *Config, from map[string]Origin) {
	n := cfg.NATS
	var methods []string
	for _, m := range []struct{ key, value string }{
		{"nats.creds", n.Creds}, {"nats.nkey", n.NKey}, {"nats.user", n.User}, {"nats.token", n.Token.Reveal()},
	} {
		if m.value != "" {
			methods = append(methods, m.key)
		}
	}
	if len(methods) > 1 {
		l.conflict(methods[1], from[methods[1]], "only one of "+strings.Join(methods, ", "))
	}
	if n.Password != "" && n.User == "" {
		l.conflict("nats.password", from["nats.password"], "nats.user with it")
	}
	if (n.TLS.Cert == "") != (n.TLS.Key == "") {
		key := "nats.tls.cert"
		if n.TLS.Cert == "" {
			key = "nats.tls.key"
		}
		l.conflict(key, from[key], "nats.tls.cert and nats.tls.key together")
	}
}

func (l *loader) checkWorkspace(cfg *Config, from map[string]Origin) {
	w := &cfg.Worker.Workspace
	if w.Dir != "" && from["worker.workspace.dir"].Layer == FromFlag && from["worker.workspace.mode"].Layer == FromDefault {
		w.Mode = "dir"
		for i := range cfg.settings {
			if s := &cfg.settings[i]; s.Key == "worker.workspace.mode" {
				s.Value, s.Origin = w.Mode, from["worker.workspace.dir"]
			}
		}
	}
	if w.Mode == "dir" && w.Dir == "" {
		l.conflict("worker.workspace.mode", from["worker.workspace.mode"], "worker.workspace.dir with mode dir")
	}
}

func (l *loader) conflict(key string, origin Origin, want string) {
	l.errs = append(l.errs, &KeyError{Key: key, Origin: origin, Err: ErrConflict, Allowed: want})
}
