// Command bench measures what pi-worker costs, against floors that are
// measured in the same run: the server, a scripted model and the workers are
// processes of their own, and the absolute times of a machine matter little.
//
//	go run ./internal/bench            all figures, a few minutes
//	go run ./internal/bench -quick     smaller numbers, under a minute
//	go run ./internal/bench -only 1,2  some figures
//	go run ./internal/bench -profiles dir   with CPU profiles of each process
//
// docs/performance.md tells what each figure means and what limits it. The
// exit code is 0 when all could be measured, 1 with -strict if a target was
// missed, 2 for a run that could not be made.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// readyTime is how long a process may take to start.
const readyTime = 20 * time.Second

func main() {
	if code, child := runChild(); child {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(mainCode(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// row is one line of the table.
type row struct {
	Figure string  `json:"figure"`
	Value  float64 `json:"value"`
	Floor  float64 `json:"floor,omitempty"` // what it is compared with, 0 nothing
	Ratio  float64 `json:"ratio,omitempty"`
	Unit   string  `json:"unit"`
	Target string  `json:"target,omitempty"`
	OK     *bool   `json:"ok,omitempty"` // nil: no target, or skipped
	Note   string  `json:"note,omitempty"`
}

// against sets the floor, and the ratio to it.
func (r row) against(floor float64) row {
	r.Floor = floor
	if floor != 0 {
		r.Ratio = r.Value / floor
	}
	return r
}

// want sets the target and whether it was reached.
func (r row) want(target string, ok bool) row {
	r.Target, r.OK = target, &ok
	return r
}

func skipped(figure, why string) row { return row{Figure: figure, Note: "skipped: " + why} }

// options are the flags.
type options struct {
	quick, json, strict bool
	only                []string
	profiles            string
}

// pick chooses by -quick.
func pick[T any](o *options, quick, full T) T {
	if o.quick {
		return quick
	}
	return full
}

// figures in the order of the table.
var figures = []struct {
	names   []string
	measure func(context.Context, *bench) ([]row, error)
}{
	{[]string{"1", "2"}, throughput},
	{[]string{"3"}, bytesPerAnswer},
	{[]string{"4"}, delays},
	{[]string{"5"}, slowBroker},
	{[]string{"6"}, prompts},
	{[]string{"7"}, manySessions},
	{[]string{"8"}, coldClaims},
	{[]string{"9"}, threeWorkers},
	{[]string{"10"}, startAndSize},
}

func mainCode(ctx context.Context, args []string, out, errOut io.Writer) int {
	o := &options{}
	var only string
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.BoolVar(&o.quick, "quick", false, "smaller numbers, under a minute")
	fs.BoolVar(&o.json, "json", false, "rows as JSON, one a line")
	fs.BoolVar(&o.strict, "strict", false, "exit with 1 if a target is missed")
	fs.StringVar(&only, "only", "", "figures to measure, with commas; default all")
	fs.StringVar(&o.profiles, "profiles", "", "folder for CPU profiles of the processes")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	rows, err := run(ctx, o, errOut)
	if err := printRows(out, o, rows); err != nil {
		fmt.Fprintln(errOut, "bench:", err)
		return 2
	}
	if err != nil {
		fmt.Fprintln(errOut, "bench: the run could not be made:", err)
		return 2
	}
	if o.strict && slices.ContainsFunc(rows, func(r row) bool { return r.OK != nil && !*r.OK }) {
		return 1
	}
	return 0
}

// run measures what is wanted. Each group of figures has processes of its own.
func run(ctx context.Context, o *options, errOut io.Writer) (rows []row, err error) {
	for _, f := range figures {
		if o.only != nil && !slices.ContainsFunc(f.names, func(n string) bool { return slices.Contains(o.only, n) }) {
			continue
		}
		begun := time.Now()
		got, err := measureOne(ctx, o, f.measure)
		fmt.Fprintf(errOut, "bench: figures %s took %.1f s, load %s\n", strings.Join(f.names, " and "), time.Since(begun).Seconds(), load())
		rows = append(rows, got...)
		if err != nil {
			return rows, fmt.Errorf("figure %s: %w", f.names[0], err)
		}
		if ctx.Err() != nil {
			return rows, ctx.Err()
		}
	}
	return rows, nil
}

func measureOne(ctx context.Context, o *options, f func(context.Context, *bench) ([]row, error)) (rows []row, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	b, err := start(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	return f(ctx, b)
}

// load is the machine's average of the last minute.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

func printRows(out io.Writer, o *options, rows []row) error {
	if o.json {
		enc := json.NewEncoder(out)
		for _, r := range rows {
			if err := enc.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "figure\tvalue\tfloor\tratio\ttarget\t\tnote")
	for _, r := range rows {
		ok := ""
		if r.OK != nil {
			ok = map[bool]string{true: "ok", false: "NOT MET"}[*r.OK]
		}
		value := number(r.Value) + " " + r.Unit
		if r.Unit == "" {
			value = ""
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Figure, value, number(r.Floor), number(r.Ratio), r.Target, ok, r.Note)
	}
	return w.Flush()
}

// number has three digits, and nothing for zero.
func number(v float64) string {
	switch {
	case v == 0:
		return ""
	case v >= 1000 || v <= -1000:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
