package config

import "time"

// Config is the whole configuration, checked. The comment of each key, its
// default and its allowed values are in [Keys].
type Config struct {
	NATS     NATS
	Worker   Worker
	Defaults Profile
	// Agents are the profiles by name, complete: what a profile left out has
	// been filled in from Defaults. "default" is always there.
	Agents       map[string]Profile
	Retention    Retention
	EphemeralTTL time.Duration // life of records with nothing but deltas; 0 keeps them
	// MaxInputBytes is the largest prompt, steer or follow-up that a client
	// publishes, blobs included.
	MaxInputBytes Bytes
	MCP           MCPServers
	Log           Log
	HTTP          HTTP
	Trace         Trace

	settings []Setting
	file     string
}

// File is the path of the file that was read, "" when there was none.
func (c *Config) File() string { return c.file }

// NATS says how to reach the broker, and what is created there.
type NATS struct {
	URL      URL    // one or more, separated by commas
	Creds    string // path of a credentials file (JWT and seed)
	NKey     string // path of a seed file
	User     string
	Password Secret
	Token    Secret
	TLS      TLS
	Prefix   string // first token of all subjects
	// InboxPrefix begins the subjects of answers, "" means _INBOX.
	InboxPrefix string
	Replicas    int // of the streams, 1, 3 or 5
	// AckWait is the life of a lease on a session without a beat.
	AckWait time.Duration
	// StartTimeout is how long a worker that starts waits for the broker; 0
	// tries once.
	StartTimeout time.Duration
}

// TLS names PEM files; "" means the system's roots and no client certificate.
type TLS struct {
	CA, Cert, Key string
}

// Worker is what only workers need.
type Worker struct {
	ID          string        // "" lets the worker make one from host name and process
	Sessions    int           // run at once
	Grace       time.Duration // from SIGTERM until unfinished turns are handed over
	MaxAttempts int           // claims of a run without a completed turn before it is dead-lettered
	// SteeringMode and FollowUpMode are "one-at-a-time" or "all".
	SteeringMode string
	FollowUpMode string
	Workspace    Workspace
}

// Workspace is where the tools of a session find their files.
type Workspace struct {
	// Mode is "dir": Dir/<session>, kept; "temp": a new folder for each claim,
	// removed after it; "snapshot": as temp, and its files are kept in NATS.
	Mode string
	Dir  string // parent of the sessions' folders; "" means the system's
	// Exclude, MaxFiles and MaxBytes are about snapshots; 0 means the default.
	Exclude  []string
	MaxFiles int
	MaxBytes Bytes
}

// Retention bounds what the streams keep; 0 is without bound.
type Retention struct {
	MaxAge         time.Duration // of event records
	MaxBytes       Bytes         // of the event stream
	SessionRecords int           // of each session, without those of nothing but deltas
	DLQMaxAge      time.Duration // of dead letters
}

// Log says how the program logs.
type Log struct {
	Level  string // "debug", "info", "warn", "error"
	Format string // "text", "json"
}

// HTTP says where a worker listens; "" opens no port.
type HTTP struct {
	Listen      string // metrics and health
	DebugListen string // profiles and the log's level; a loopback address
}

// Trace says what spans hold.
type Trace struct {
	Content bool // messages, arguments and results
}

// Bytes is a size. In files and variables it may have a unit: KB, MB, GB are
// powers of 1000, KiB, MiB, GiB powers of 1024.
type Bytes int64
