package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pi-worker/pi-worker/tools"
	"github.com/pi-worker/pi-worker/tools/snapshot"
)

// ErrConfig says that a value of the configuration cannot work, which package
// config could not know.
var ErrConfig = errors.New("the configuration cannot work")

// Check says what every session would fail by, before there is one: all of it,
// each an [ErrConfig]. It makes worker.workspace.dir, and asks no server.
func (a *Agents) Check() error {
	var errs []error
	wrong := func(err error) { errs = append(errs, fmt.Errorf("%w: %w", ErrConfig, err)) }
	if err := a.makeParent(); err != nil {
		wrong(err)
	}
	if err := snapshot.CheckPatterns(a.cfg.Worker.Workspace.Exclude); err != nil {
		wrong(fmt.Errorf("worker.workspace.exclude: %w", err))
	}
	for _, p := range a.cfg.Agents {
		if _, err := tools.ParseCalls(p.Approval.Ask...); err != nil {
			wrong(fmt.Errorf("agents.%s.approval.ask: %w", p.Name, err))
		}
		for _, name := range p.Tools {
			if !slices.Contains(tools.Names(), name) {
				wrong(fmt.Errorf("agents.%s.tools: no built-in tool is called %q; known are %s", p.Name, name, strings.Join(tools.Names(), ", ")))
			}
		}
	}
	return errors.Join(errs...)
}
