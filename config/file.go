package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// file is the YAML file as the loader needs it: the bytes for viper, and of
// each key the line, which viper does not keep.
type file struct {
	path   string // "" when there is none
	data   []byte
	lines  map[string]int // by key, in lower case
	agents []string       // names, in order
}

// localFile is looked for in the working directory.
const localFile = "pi-worker.yaml"

// findFile gives the path of the file and where it was named.
func findFile(named string) (path string, origin Origin) {
	if named != "" {
		return named, Origin{Layer: FromFlag, Where: "--" + configFlag}
	}
	if env := os.Getenv("PI_CONFIG"); env != "" {
		return env, Origin{Layer: FromEnv, Where: "PI_CONFIG"}
	}
	candidates := []string{localFile}
	if dir := os.Getenv("XDG_CONFIG_HOME"); dir != "" {
		candidates = append(candidates, filepath.Join(dir, "pi-worker", "config.yaml"))
	} else if home, err := os.UserHomeDir(); err == nil {
		candidates = append(candidates, filepath.Join(home, ".config", "pi-worker", "config.yaml"))
	}
	for _, path := range candidates {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return path, Origin{Layer: FromFile, Where: path}
		}
	}
	return "", Origin{}
}

// readFile reads the file and checks its keys. A file that cannot be read or
// is no YAML is one error; unknown keys are one each, joined.
func readFile(path string, origin Origin) (*file, error) {
	f := &file{path: path, lines: map[string]int{}}
	if path == "" {
		return f, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return f, &KeyError{Key: configFlag, Value: path, Origin: origin, Err: reason(err)}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return f, fmt.Errorf("config: reading %s: %w", path, err)
	}
	if len(doc.Content) == 0 {
		return f, nil // empty, or nothing but comments
	}
	if root := doc.Content[0]; root.Kind != yaml.MappingNode && root.Tag != "!!null" {
		return f, fmt.Errorf("config: reading %s:%d: want keys with values at the top", path, root.Line)
	}
	// Decoding finds keys that are there twice, and anchors that hold
	// themselves, which walk must not meet.
	if err := doc.Decode(&map[string]any{}); err != nil {
		return f, fmt.Errorf("config: reading %s: %w", path, err)
	}
	f.data = bytes.Clone(data)
	return f, f.walk(doc.Content[0], "")
}

// reason drops the path from an error of the file system: the message has it.
func reason(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

var agentName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// walk notes the line of each key below the mapping, and refuses those that
// do not exist.
func (f *file) walk(node *yaml.Node, prefix string) error {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	var errs []error
	for i := 0; i+1 < len(node.Content) && node.Kind == yaml.MappingNode; i += 2 {
		k, v := node.Content[i], node.Content[i+1]
		if k.Tag == "!!merge" {
			errs = append(errs, f.merge(v, prefix))
			continue
		}
		errs = append(errs, f.entry(prefix+strings.ToLower(k.Value), k, v))
	}
	return errors.Join(errs...)
}

// merge walks the mappings of a merge key.
func (f *file) merge(v *yaml.Node, prefix string) error {
	if v.Kind != yaml.SequenceNode {
		return f.walk(v, prefix)
	}
	var errs []error
	for _, one := range v.Content {
		errs = append(errs, f.walk(one, prefix))
	}
	return errors.Join(errs...)
}

func (f *file) entry(name string, k, v *yaml.Node) error {
	origin := Origin{Layer: FromFile, Where: fmt.Sprintf("%s:%d", f.path, k.Line)}
	agent, inAgents := strings.CutPrefix(name, "agents.")
	isAgent := inAgents && !strings.Contains(agent, ".")
	switch {
	case isAgent && !agentName.MatchString(agent):
		return &KeyError{Key: name, Origin: origin, Err: ErrValue, Allowed: "a profile name of letters, digits, _ and -, at most 64"}
	case isAgent, name == "agents", isGroup(name):
		if v.Kind == yaml.AliasNode {
			v = v.Alias
		}
		if v.Kind != yaml.MappingNode && v.Tag != "!!null" {
			return &KeyError{Key: name, Origin: origin, Err: ErrValue, Allowed: "keys below it"}
		}
		if isAgent {
			f.agents = append(f.agents, agent)
		}
		return f.walk(v, name+".")
	case isKey(name):
		f.lines[name] = k.Line
		return nil
	}
	return &KeyError{Key: name, Origin: origin, Err: ErrUnknownKey, Allowed: nearestKey(name)}
}
