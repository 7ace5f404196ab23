package tools

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// ErrUnknownTool says that a name is none of the built-in tools.
var ErrUnknownTool = errors.New("tools: unknown tool")

// ErrClosed says that the workspace was closed.
var ErrClosed = errors.New("tools: workspace is closed")

// Options change a workspace's tools. The zero value is fit for use.
type Options struct {
	// Env is the environment of commands: "NAME" passes the variable on if the
	// worker has it, "NAME=value" sets it. nil: [DefaultEnv]. HOME and TMPDIR
	// are the workspace and its temporary folder unless Env says otherwise.
	Env []string
	// BashTimeout is the deadline of a command that names none; 0: 2 minutes.
	BashTimeout time.Duration
	// BashMaxTimeout is the longest deadline that a command may ask for;
	// longer ones are cut to it. 0: 30 minutes.
	BashMaxTimeout time.Duration
	// Shell runs the commands, with "-c"; "": /bin/bash, bash from PATH, sh.
	Shell string
	// Wrapper is put before the shell's command line, for example
	// {"bwrap", "--bind", dir, dir, …, "--"}. nil: none.
	Wrapper []string
	// Private hides from commands what is beside the workspace: its parent
	// folder, the worker's home, /tmp, /run and the devices; the rest of the
	// file system is read-only, root's powers over the system are dropped and
	// setuid programs have none. It needs namespaces, see [Isolation]; where
	// the kernel allows none, bash refuses to run.
	Private bool
	// Hidden are further files and folders that private commands do not see,
	// such as key files: files are empty to them, and so are folders.
	Hidden []string
	// NoNetwork leaves commands only a loopback interface that nothing else is
	// on; it needs namespaces too.
	NoNetwork bool
	// CommandPrefix is text that runs in the shell before each command.
	CommandPrefix string
	// NoImages says that the model takes no images: read then says so.
	NoImages bool
	// KeepImages leaves images at their size; otherwise those over 2000
	// pixels are scaled down.
	KeepImages bool
	// Outputs keeps long outputs of commands where other workers find them
	// too. nil: they are in the workspace only.
	Outputs Outputs
	// Limits bound what one call may cost.
	Limits Limits
}

// Limits bound one call; a zero field has the default.
type Limits struct {
	// ReadBytes is the largest file that read and edit take; 0: 64 MiB.
	ReadBytes int64
	// WriteBytes is the largest file that write and edit make; 0: 64 MiB.
	WriteBytes int64
	// OutputBytes is how much of a command's output is kept in its file; the
	// rest is counted and dropped. 0: 64 MiB.
	OutputBytes int64
	// Command bounds the processes of a command.
	Command CommandLimits
	// SearchTime bounds one grep or find; 0: 1 minute.
	SearchTime time.Duration
	// ImagePixels is the largest image, width times height, that is decoded;
	// 0: 25 million. One image is decoded at a time.
	ImagePixels int64
}

// CommandLimits are limits of the operating system for each process of a
// command, in its children too; 0 is without limit.
type CommandLimits struct {
	// FileBytes is the largest file that a process may write.
	FileBytes int64
	// MemoryBytes is the address space of one process. Programs that reserve
	// much more than they use (Go, Java, Node) need some GiB.
	MemoryBytes int64
	// Processes is how many processes and threads the user may have. The
	// kernel counts those of the whole user and does not hold root to it.
	Processes int64
}

// DefaultEnv is the environment of commands when Options.Env is nil.
func DefaultEnv() []string {
	return []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM=dumb"}
}

// Workspace is the folder that one session's tools work in. Its methods may be
// called from any goroutine.
type Workspace struct {
	dir  string // absolute, links resolved
	name string // absolute, as it was given
	root *os.Root
	opt  Options
	// isolated is how commands are isolated; "" is the best that works.
	isolated isolation

	writing sync.Mutex // held while a file is changed

	mu     sync.Mutex
	closed bool                       // guarded by mu
	later  func() (*Workspace, error) // guarded by mu; nil: it is open
}

// Open opens the folder dir, which must exist, as a workspace. nil options are
// the defaults. The caller closes it.
func Open(dir string, opt *Options) (*Workspace, error) {
	if opt == nil {
		opt = &Options{}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("tools: opening workspace: %w", err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("tools: opening workspace: %w", err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("tools: opening workspace: %w", err)
	}
	return &Workspace{dir: real, name: abs, root: root, opt: opt.withDefaults()}, nil
}

// Later is a workspace that the first call of one of its tools opens; until then
// [Workspace.Dir] is "". After an error, which is the call's result without
// paths of the host, the next call tries again. What open gave belongs to what Later returns, and is closed with it.
func Later(open func() (*Workspace, error)) *Workspace { return &Workspace{later: open} }

// ready opens a workspace that is to be opened later.
func (w *Workspace) ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.later == nil:
		return nil
	case w.closed:
		return ErrClosed
	}
	o, err := w.later()
	if err != nil {
		return fmt.Errorf("opening the workspace: %w", hostError(err, "."))
	}
	w.dir, w.name, w.root, w.opt, w.later = o.dir, o.name, o.root, o.opt, nil
	return nil
}

func (o *Options) withDefaults() Options {
	c := *o
	if c.Env == nil {
		c.Env = DefaultEnv()
	}
	setDefault(&c.BashTimeout, 2*time.Minute)
	setDefault(&c.BashMaxTimeout, 30*time.Minute)
	setDefault(&c.Limits.ReadBytes, 64<<20)
	setDefault(&c.Limits.WriteBytes, 64<<20)
	setDefault(&c.Limits.OutputBytes, 64<<20)
	setDefault(&c.Limits.SearchTime, time.Minute)
	setDefault(&c.Limits.ImagePixels, 25_000_000)
	c.BashTimeout = min(c.BashTimeout, c.BashMaxTimeout)
	return c
}

func setDefault[T ~int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Dir is the workspace's absolute path on the host, links resolved.
func (w *Workspace) Dir() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dir
}

// Close ends the use of the folder. Calls that run are not waited for; they
// fail.
func (w *Workspace) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	if w.later != nil {
		return nil
	}
	return w.root.Close()
}

// Remove removes a workspace with all that is in it, folders included that a
// command has closed to their owner. A folder that does not exist is no error.
func Remove(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	if info, statErr := os.Lstat(dir); statErr == nil && info.IsDir() {
		_ = os.Chmod(dir, 0o700)
	}
	root, openErr := os.OpenRoot(dir)
	if openErr != nil {
		return err
	}
	openFolders(root, maxDepth)
	root.Close()
	return os.RemoveAll(dir)
}

// openFolders lets the owner into every folder below root.
func openFolders(root *os.Root, depth int) {
	_ = root.Chmod(".", 0o700)
	entries, _ := readDir(root)
	for _, e := range entries {
		if !e.IsDir() || depth == 0 {
			continue
		}
		_ = root.Chmod(e.Name(), 0o700)
		if sub, err := root.OpenRoot(e.Name()); err == nil {
			openFolders(sub, depth-1)
			sub.Close()
		}
	}
}

// Names lists the built-in tools.
func Names() []string { return []string{"read", "write", "edit", "bash", "grep", "find", "ls"} }

// Tools returns the named tools, all of them without a name. The error for an
// unknown name is [ErrUnknownTool] and lists the known ones.
func (w *Workspace) Tools(names ...string) ([]loop.Tool, error) {
	if len(names) == 0 {
		names = Names()
	}
	list := make([]loop.Tool, 0, len(names))
	var errs []error
	for _, name := range names {
		if !slices.Contains(Names(), name) {
			errs = append(errs, fmt.Errorf("%w %q, known are %s",
				ErrUnknownTool, name, strings.Join(Names(), ", ")))
			continue
		}
		list = append(list, w.tool(name))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return list, nil
}

func (w *Workspace) isolation() isolation {
	if w.isolated != "" {
		return w.isolated
	}
	return bestIsolation()
}
