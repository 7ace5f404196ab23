package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/config"
	"github.com/pi-worker/pi-worker/internal/secret"
	"github.com/pi-worker/pi-worker/internal/wire"
)

func toolsCommand(out, errOut io.Writer) *cobra.Command {
	var agent string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List what a profile gives its model, and where each tool comes from",
		Long: `tools lists the tools of a profile as a run would have them now: the built-in
ones, those of MCP servers, which it starts for this, and those that services
offer over NATS. With --json it also has their schemas.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			log := wire.Logger(cfg.Log, secret.New(wire.Secrets(cfg)...).Writer(errOut))
			agents := wire.NewAgents(cfg, log)
			defer func() { err = errors.Join(err, agents.Close()) }()
			p, err := cfg.Profile(agent)
			if err != nil {
				return usageError{err}
			}
			if len(p.Outside.Remote)+len(p.Outside.MCP) > 0 {
				// Only then: the built-in ones need no broker.
				nc, err := wire.Connect(cfg.NATS, "pi-worker tools", log)
				if err != nil {
					return err
				}
				defer nc.Close()
				if err := agents.Start(cmd.Context(), nc); err != nil {
					return err
				}
			}
			return writeTools(out, errOut, agents, p, asJSON)
		},
	}
	cmd.Flags().StringVar(&agent, "agent", config.DefaultAgent, "profile whose tools are listed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON array with schemas")
	return cmd
}

func writeTools(out, errOut io.Writer, agents *wire.Agents, p config.Profile, asJSON bool) error {
	list, missing, err := agents.Tools(p.Name)
	if err != nil {
		return err
	}
	for _, m := range missing {
		fmt.Fprintf(errOut, "pi-worker: no tool is there for %s\n", m)
	}
	if asJSON {
		return writeToolsJSON(out, list)
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "TOOL\tFROM\tAPPROVAL\tDESCRIPTION")
	for _, t := range list {
		asks := "-"
		if len(t.Asks) > 0 {
			asks = strings.Join(t.Asks, ", ")
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", t.Spec.Name, line(t.Origin), asks, line(t.Spec.Description))
	}
	return tw.Flush()
}

// line is a stranger's text on one line of at most 60 letters.
func line(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(s); len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return s
}

func writeToolsJSON(out io.Writer, list []wire.ToolInfo) error {
	type row struct {
		Name        string          `json:"name"`
		Label       string          `json:"label,omitempty"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Origin      string          `json:"origin"`
		Approval    []string        `json:"approval,omitempty"`
		Idempotent  bool            `json:"idempotent"`
		Sequential  bool            `json:"sequential"`
	}
	rows := make([]row, 0, len(list))
	for _, t := range list {
		s := t.Spec
		rows = append(rows, row{
			s.Name, s.Label, s.Description, s.Parameters, t.Origin, t.Asks, s.Idempotent, s.ExecutionMode == "sequential",
		})
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}
