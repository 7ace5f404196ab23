package deploy

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// metric is a line of docs/metrics.md.
type metric struct {
	histogram bool
	labels    []string
	values    map[string][]string // of labels whose values are listed
}

var (
	line = regexp.MustCompile("(?m)^\\| `(pi_worker_[a-z_]+)` \\| (gauge|counter|histogram) \\|([^|]*)\\|")
	code = regexp.MustCompile("`([^`]+)`")
	// others are labels that Prometheus, Kubernetes and histograms give.
	others = []string{"instance", "job", "namespace", "pod", "le"}
)

func words(text string) []string {
	var out []string
	for _, m := range code.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// documented reads the metrics that dashboards and alerts may rely on.
func documented(t *testing.T) map[string]metric {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	_, classes, _ := strings.Cut(text, "Classes of errors:")
	classes, _, _ = strings.Cut(classes, "\n\n")
	out := map[string]metric{}
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		names, values, listed := strings.Cut(m[3], ":")
		one := metric{histogram: m[2] == "histogram", labels: words(names), values: map[string][]string{}}
		if listed && len(one.labels) > 0 {
			one.values[one.labels[len(one.labels)-1]] = words(values)
		}
		for _, l := range []string{"result", "class"} {
			if slices.Contains(one.labels, l) {
				one.values[l] = append(one.values[l], words(classes)...)
			}
		}
		out[m[1]] = one
	}
	if len(out) < 30 || len(words(classes)) < 10 {
		t.Fatalf("found %d metrics and %d classes", len(out), len(words(classes)))
	}
	return out
}

var promql = parser.NewParser(parser.Options{})

// checkQuery parses a query and looks up its metrics, labels and values.
func checkQuery(t *testing.T, where, query string, known map[string]metric) (used []string) {
	t.Helper()
	expr, err := promql.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v\n%s", where, err, query)
		return nil
	}
	allowed := slices.Clone(others)
	var grouped []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			grouped = append(grouped, n.Grouping...)
		case *parser.VectorSelector:
			if strings.HasPrefix(n.Name, "process_") || strings.HasPrefix(n.Name, "go_") {
				return nil
			}
			name, m, ok := find(n.Name, known)
			if !ok {
				t.Errorf("%s: docs/metrics.md has no %s", where, n.Name)
				return nil
			}
			used = append(used, name)
			allowed = append(allowed, m.labels...)
			for _, match := range n.LabelMatchers {
				checkMatcher(t, where, n.Name, m, match)
			}
		}
		return nil
	})
	for _, g := range grouped {
		if !slices.Contains(allowed, g) {
			t.Errorf("%s: groups by %s, which none of its metrics has: %s", where, g, query)
		}
	}
	return used
}

func checkMatcher(t *testing.T, where, name string, m metric, match *labels.Matcher) {
	t.Helper()
	if match.Name == labels.MetricName || slices.Contains(others, match.Name) {
		return
	}
	if !slices.Contains(m.labels, match.Name) {
		t.Errorf("%s: %s has no label %s", where, name, match.Name)
	}
	listed := m.values[match.Name]
	if len(listed) == 0 || strings.HasPrefix(match.Value, "$") {
		return
	}
	for v := range strings.SplitSeq(match.Value, "|") {
		if !slices.Contains(listed, v) {
			t.Errorf("%s: %s of %s is never %q", where, match.Name, name, v)
		}
	}
}

// find takes the series of a histogram for the histogram.
func find(series string, known map[string]metric) (string, metric, bool) {
	if m, ok := known[series]; ok && !m.histogram {
		return series, m, true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if name, cut := strings.CutSuffix(series, suffix); cut && known[name].histogram {
			return name, known[name], true
		}
	}
	return "", metric{}, false
}

// The rules are checked by the code behind `promtool check rules`.
func TestAlertRulesLoad(t *testing.T) {
	file := filepath.Join(root, "deploy", "observability", "alerts.yaml")
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	known := documented(t)
	seen := map[string]bool{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			checkQuery(t, r.Alert, r.Expr, known)
			if seen[r.Alert] || r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
				t.Errorf("%s: named twice, or without severity or summary", r.Alert)
			}
			seen[r.Alert] = true
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d alerts", len(seen))
	}
}

type dashboard struct {
	UID           string `json:"uid"`
	SchemaVersion int    `json:"schemaVersion"`
	Panels        []struct {
		ID      int    `json:"id"`
		Type    string `json:"type"`
		Title   string `json:"title"`
		GridPos struct{ X, Y, W, H int }
		Targets []struct {
			Expr       string            `json:"expr"`
			Datasource map[string]string `json:"datasource"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name string `json:"name"`
		} `json:"list"`
	} `json:"templating"`
}

var (
	// Grafana's own variables stand where PromQL wants a duration.
	durations = strings.NewReplacer("$__rate_interval", "5m", "$__range", "3h")
	variable  = regexp.MustCompile(`\$\{?([a-z]\w*)`)
)

// Every panel asks for metrics that exist, and every metric is on a panel.
func TestDashboardShowsEveryMetric(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "deploy", "observability", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || d.SchemaVersion < 30 {
		t.Errorf("uid %q, schema %d", d.UID, d.SchemaVersion)
	}
	known, shown := documented(t), map[string]bool{}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d %q: its id is there twice, or it has no title or no query", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q lies over %q, or beyond the edge", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			for _, name := range checkQuery(t, p.Title, durations.Replace(target.Expr), known) {
				shown[name] = true
			}
			if target.Datasource["uid"] != "${datasource}" {
				t.Errorf("%s: data source %v", p.Title, target.Datasource)
			}
		}
	}
	for name := range known {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
	for _, m := range variable.FindAllStringSubmatch(durations.Replace(string(b)), -1) {
		if !slices.ContainsFunc(d.Templating.List, func(v struct {
			Name string `json:"name"`
		}) bool {
			return v.Name == m[1]
		}) {
			t.Errorf("$%s is not a variable of the dashboard", m[1])
		}
	}
}

// What compose mounts for Prometheus and Grafana is YAML and names files that
// exist.
func TestComposeObservabilityFilesLoad(t *testing.T) {
	for _, name := range []string{"prometheus.yml", "grafana/datasources.yaml", "grafana/dashboards.yaml"} {
		b, err := os.ReadFile(filepath.Join(root, "deploy", "observability", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		var into map[string]any
		if err := yaml.UnmarshalStrict(b, &into); err != nil || len(into) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
