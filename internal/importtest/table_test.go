package importtest

// rule says what the Go files of one folder may import besides the standard
// library.
type rule struct {
	ours   []string // folders of this module
	theirs []string // modules or packages of others, by prefix
}

const (
	natsGo     = "github.com/nats-io/nats.go"
	nkeys      = "github.com/nats-io/nkeys"
	nuid       = "github.com/nats-io/nuid"
	natsServer = "github.com/nats-io/nats-server/v2"
	schema     = "github.com/santhosh-tekuri/jsonschema/v6"
	inferred   = "github.com/google/jsonschema-go"
	openaiGo   = "github.com/openai/openai-go/v3"
	gjson      = "github.com/tidwall/gjson"
	sjson      = "github.com/tidwall/sjson"
	cobra      = "github.com/spf13/cobra"
	pflag      = "github.com/spf13/pflag"
	viper      = "github.com/spf13/viper"
	yaml       = "go.yaml.in/yaml/v3"
	xsync      = "golang.org/x/sync"
	xsys       = "golang.org/x/sys"
	xterm      = "golang.org/x/term"
	xtext      = "golang.org/x/text"
	charm      = "charm.land"
	containers = "github.com/testcontainers/testcontainers-go"
	moby       = "github.com/moby/moby"
	mcpSDK     = "github.com/modelcontextprotocol/go-sdk"
	runewidth  = "github.com/mattn/go-runewidth"
	prometheus = "github.com/prometheus/client_golang"
	otel       = "go.opentelemetry.io/otel"
	otelProto  = "go.opentelemetry.io/proto/otlp"
	protobuf   = "google.golang.org/protobuf"
)

// otelAPI is what spans are made with; the SDK is the command's.
var otelAPI = []string{
	otel + "/attribute", otel + "/codes", otel + "/propagation", otel + "/semconv", otel + "/trace",
}

const (
	grpc = "google.golang.org/grpc"
)

// table is the one direction in which imports run. A new folder needs a line
// here, and a reason that a newcomer would accept.
var table = map[string]rule{
	"loop":          {theirs: []string{schema, xtext}}, // x/text: the validator's messages
	"loop/openai":   {ours: []string{"loop"}, theirs: []string{openaiGo, gjson, sjson}},
	"loop/looptest": {ours: []string{"loop"}},
	// The mkoracles pack the oracles' files for the tests.
	"loop/looptest/mkoracle": {},
	"tools/mkoracle":         {},

	"subjects": {theirs: []string{natsGo}},
	"config":   {theirs: []string{viper, pflag, yaml}},
	"tools":    {ours: []string{"loop"}, theirs: []string{xsys, xtext, inferred}}, // the schema of a Func

	"tools/natstool": {ours: []string{"loop"}, theirs: []string{natsGo}},
	"tools/snapshot": {},
	"tools/mcptool":  {ours: []string{"loop"}, theirs: []string{mcpSDK, nuid}},

	"internal/session": {ours: []string{"subjects", "loop"}, theirs: []string{natsGo, nuid, xsync}},
	"worker":           {ours: []string{"internal/session", "internal/secret", "subjects", "loop"}, theirs: append([]string{natsGo, nuid, xsync}, otelAPI...)},
	"client":           {ours: []string{"internal/session", "subjects", "loop"}, theirs: append([]string{natsGo, nuid, xsync}, otelAPI...)},

	"internal/secret": {},
	// What a worker tells of itself: hooks become metrics, spans leave the process.
	"internal/metrics": {ours: []string{"worker", "loop"}, theirs: []string{natsGo, prometheus}},
	"internal/otlp":    {theirs: []string{otel, otelProto, protobuf}},

	"internal/natsd":      {theirs: []string{natsServer, natsGo}},
	"internal/natstest":   {ours: []string{"internal/natsd"}, theirs: []string{natsServer, natsGo}},
	"internal/importtest": {},
	// chaos plays all the parts, and breaks them; its checker trusts only the codec.
	"internal/chaos": {
		ours:   []string{"internal/chaos/check", "internal/chaos/proxy", "internal/wire", "internal/session", "worker", "client", "subjects", "config", "loop", "loop/openai", "loop/looptest"},
		theirs: []string{natsServer, natsGo},
	},
	"internal/bench": {
		ours:   []string{"internal/wire", "internal/session", "worker", "client", "subjects", "config", "loop"},
		theirs: []string{natsGo, natsServer},
	},
	"internal/chaos/check": {ours: []string{"loop"}},
	"internal/chaos/proxy": {},

	// Tests alone: the broker's configurations tried, and the product in containers.
	"deploy/nats":          {ours: []string{"client", "tools/natstool", "worker"}}, // its tests: the roles at work
	"internal/integration": {ours: []string{"client"}, theirs: []string{containers, moby}},

	// internal/wire makes what both commands need from a configuration.
	"internal/wire": {
		ours:   []string{"worker", "loop", "loop/openai", "tools", "tools/natstool", "tools/mcptool", "tools/snapshot", "subjects", "config", "internal/session", "internal/secret"},
		theirs: []string{natsGo, nkeys, mcpSDK}, // its tests are an MCP server
	},
	// dev without a model runs a scripted one.
	"cmd/pi-worker": {
		ours:   []string{"internal/wire", "internal/metrics", "internal/otlp", "internal/secret", "worker", "loop", "loop/openai", "tools", "tools/natstool", "subjects", "config", "internal/natsd", "internal/session", "loop/looptest"},
		theirs: []string{natsGo, nuid, cobra, pflag},
	},
	// demo and dev wire what pi-worker wires, and a scripted model.
	"cmd/pi-cli": {
		ours:   []string{"client", "internal/wire", "worker", "loop", "loop/openai", "loop/looptest", "tools", "subjects", "config", "internal/natsd"},
		theirs: []string{natsGo, cobra, pflag, xterm, charm, runewidth},
	},
}

// testsMay is what test files may import besides: the instruments of tests,
// and their own folder from outside.
var testsMay = rule{
	ours: []string{"loop", "loop/looptest", "loop/openai", "internal/natsd", "internal/natstest", "subjects"},
	theirs: []string{
		"go.uber.org/goleak", "pgregory.net/rapid", "github.com/google/go-cmp",
		natsGo, natsServer, nkeys, "github.com/nats-io/jwt/v2", schema, gjson, openaiGo, pflag, cobra, yaml,
		otel, otelProto, protobuf, grpc, prometheus,
	},
}
