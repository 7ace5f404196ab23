package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/config"
)

func configCommand(out io.Writer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration and where each value comes from",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(cmd)
			if err != nil {
				return err
			}
			if asJSON {
				return writeConfigJSON(out, cfg.Effective())
			}
			tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			for _, s := range cfg.Effective() {
				fmt.Fprintf(tw, "%s\t%s\t%s\n", s.Key, s.Value, s.Origin)
			}
			return tw.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON array of key, value and origin")
	return cmd
}

func writeConfigJSON(out io.Writer, settings []config.Setting) error {
	type row struct {
		Key    string `json:"key"`
		Value  string `json:"value"`
		Origin string `json:"origin"`
	}
	rows := make([]row, 0, len(settings))
	for _, s := range settings {
		rows = append(rows, row{s.Key, s.Value, s.Origin.String()})
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}
