package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/pi-worker/pi-worker/loop"
)

// maxCommand is the longest command, in bytes: the kernel takes no longer
// argument.
const maxCommand = 128<<10 - 1

// fallbackPath is the PATH of commands when the environment has none.
const fallbackPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

type bashArgs struct {
	Command string `json:"command"`
	Timeout number `json:"timeout"`
}

type bashDetails struct {
	Truncation     *truncation `json:"truncation,omitempty"`
	FullOutputPath string      `json:"fullOutputPath,omitempty"`
	// Output is the whole in the store of Options.Outputs.
	Output *StoredOutput `json:"output,omitempty"`
}

func (w *Workspace) bash(ctx context.Context, args json.RawMessage, update updater) (loop.ToolResult, error) {
	in, err := unmarshalArgs[bashArgs](args)
	if err != nil {
		return loop.ToolResult{}, err
	}
	argv, err := w.commandLine(in.Command)
	if err != nil {
		return loop.ToolResult{}, err
	}
	if _, err := w.root.Stat("."); errors.Is(err, os.ErrClosed) {
		return loop.ToolResult{}, ErrClosed
	}
	if info, err := os.Stat(w.dir); err != nil || !info.IsDir() {
		return loop.ToolResult{}, errors.New("Working directory does not exist: .\nCannot execute bash commands.")
	}
	timeout := w.timeout(in.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errDeadline)
	defer cancel()
	update(loop.ToolResult{Content: []loop.Block{}})
	out := &output{w: w, call: loop.CallKey(ctx)}
	status, err := w.runCommand(ctx, argv, out, update)
	out.close()
	if err == nil && errors.Is(context.Cause(ctx), errDeadline) && !status.exited {
		err = fmt.Errorf("Command timed out after %s seconds", formatNumber(timeout.Seconds()))
	}
	return bashResult(out, out.store(ctx), status, err)
}

var errDeadline = errors.New("deadline of the command")

// bashResult words the end of a command as pi does. stored is nil if the whole
// output is in no store.
func bashResult(out *output, stored *StoredOutput, status commandStatus, err error) (loop.ToolResult, error) {
	text, t := out.result()
	switch {
	case err != nil:
	case !status.exited:
		err = errors.New("Command aborted")
	case status.signal != "":
		err = errors.New("Command was killed by " + status.signal)
	case status.code != 0:
		if text == "" {
			text = "(no output)"
		}
		err = fmt.Errorf("Command exited with code %d", status.code)
	}
	if err != nil {
		if text != "" {
			err = fmt.Errorf("%s\n\n%w", text, err)
		}
		if stored != nil { // a Go error could not name it
			res := textResult(err.Error(), bashDetails{t, out.filePath, stored})
			res.IsError = true
			return res, nil
		}
		return loop.ToolResult{}, err
	}
	if text == "" {
		text = "(no output)"
	}
	if t == nil {
		return loop.TextResult(text), nil
	}
	return textResult(text, bashDetails{t, out.filePath, stored}), nil
}

// timeout is the deadline of a command: what it asks for within the maximum,
// the default if it asks for nothing or nonsense.
func (w *Workspace) timeout(asked number) time.Duration {
	if asked == nil || !(*asked > 0) {
		return w.opt.BashTimeout
	}
	if *asked >= w.opt.BashMaxTimeout.Seconds() {
		return w.opt.BashMaxTimeout
	}
	return time.Duration(math.Ceil(*asked * float64(time.Second)))
}

// commandLine is what the keeper runs: the file, then its argv.
func (w *Workspace) commandLine(command string) ([]string, error) {
	shell, err := w.shell()
	if err != nil {
		return nil, err
	}
	if w.opt.CommandPrefix != "" {
		command = w.opt.CommandPrefix + "\n" + command
	}
	switch {
	case strings.ContainsRune(command, 0):
		return nil, errors.New("The command holds a NUL byte")
	case len(command) > maxCommand:
		return nil, fmt.Errorf("E2BIG: the command has %s, over the limit of %s; write it to a file and run that",
			formatSize(len(command)), formatSize(maxCommand))
	}
	argv := append(append([]string(nil), w.opt.Wrapper...), shell, "-c", command)
	file, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("Command wrapper not found: %s", argv[0])
	}
	return append([]string{file}, argv...), nil
}

func (w *Workspace) shell() (string, error) {
	if w.opt.Shell != "" {
		if _, err := os.Stat(w.opt.Shell); err != nil {
			return "", fmt.Errorf("Custom shell path not found: %s", w.opt.Shell)
		}
		return w.opt.Shell, nil
	}
	for _, name := range []string{"/bin/bash", "bash", "sh"} {
		if file, err := exec.LookPath(name); err == nil {
			return file, nil
		}
	}
	return "", errors.New("No shell found on this worker")
}

// environment is the command's whole environment. ownTmp says that its TMPDIR
// is the workspace's.
func (w *Workspace) environment() (env []string, ownTmp bool) {
	tmp := w.dir + "/" + privateDir + "/tmp"
	values := map[string]string{"HOME": w.dir, "TMPDIR": tmp, "PATH": ""}
	for _, entry := range w.opt.Env {
		name, value, fixed := strings.Cut(entry, "=")
		if !fixed {
			inherited, ok := os.LookupEnv(name)
			if !ok {
				continue
			}
			value = inherited
		}
		values[name] = value
	}
	if values["PATH"] == "" {
		values["PATH"] = fallbackPath
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		env = append(env, name+"="+values[name])
	}
	return env, values["TMPDIR"] == tmp
}
