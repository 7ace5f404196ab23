package config

import (
	"github.com/spf13/pflag"
)

// Scope says which program's flags [AddFlags] adds.
type Scope int

// The programs. Both may be combined.
const (
	ForClient Scope = 1 << iota
	ForWorker
)

const configFlag = "config"

// AddFlags adds --config and the flags of the scope's keys. Their values are
// checked by [Load], together with everything else.
func AddFlags(fs *pflag.FlagSet, scope Scope) {
	fs.String(configFlag, "", "configuration file (default $PI_CONFIG, ./pi-worker.yaml, ~/.config/pi-worker/config.yaml)")
	addFlags(fs, scope, keys)
	addFlags(fs, scope, profileKeys)
}

func addFlags[T any](fs *pflag.FlagSet, scope Scope, table []key[T]) {
	for _, k := range table {
		if k.flag == "" || k.scope&scope == 0 {
			continue
		}
		usage := k.doc
		if k.def != "" {
			usage += " (default " + k.def + ")"
		}
		fs.VarP(&flagValue{kind: flagKind(k.field(new(T)))}, k.flag, k.short, usage)
	}
}

// flagValue keeps the text as written: only Load knows what is allowed.
type flagValue struct{ text, kind string }

func (f *flagValue) String() string     { return f.text }
func (f *flagValue) Set(s string) error { f.text = s; return nil }

// Type is what the help shows. It must be none of pflag's own names: viper
// would convert the text, and turn what does not convert into zero.
func (f *flagValue) Type() string { return f.kind }

func flagKind(field any) string {
	switch field.(type) {
	case *int, *int64, *float64:
		return "number"
	case *Bytes:
		return "size"
	}
	if typeText(field) == typeText(new(string)) {
		return "text"
	}
	return "time"
}
