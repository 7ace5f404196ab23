// Package deploy checks what is under deploy/: that the chart renders to what
// Kubernetes and pi-worker accept, and that rules and dashboard load.
package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

var root = filepath.Join("..", "..")

// release is what the chart renders to, decoded as strictly as the API server
// would: an unknown field is an error.
type release struct {
	files       map[string]string
	deployment  appsv1.Deployment
	config      corev1.ConfigMap
	account     *corev1.ServiceAccount
	disruption  *policyv1.PodDisruptionBudget
	network     *networkingv1.NetworkPolicy
	scaled      *scaledObject
	podMonitors int
}

// scaledObject is as much of KEDA's v1alpha1 as the chart may use.
type scaledObject struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       struct {
		ScaleTargetRef struct {
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		PollingInterval int            `json:"pollingInterval"`
		CooldownPeriod  int            `json:"cooldownPeriod"`
		Min             int            `json:"minReplicaCount"`
		Max             int            `json:"maxReplicaCount"`
		Advanced        map[string]any `json:"advanced"`
		Triggers        []trigger      `json:"triggers"`
	} `json:"spec"`
}

type trigger struct {
	Type       string            `json:"type"`
	MetricType string            `json:"metricType"`
	Metadata   map[string]string `json:"metadata"`
}

func renderErr(values string) (map[string]string, error) {
	chart, err := loader.LoadDir(filepath.Join(root, "deploy", "helm", "pi-worker"))
	if err != nil {
		return nil, err
	}
	var given map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		return nil, err
	}
	caps := common.DefaultCapabilities
	all, err := util.ToRenderValues(chart, given, common.ReleaseOptions{Name: "fleet", Namespace: "agents", Revision: 1, IsInstall: true}, caps)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(chart, all)
}

func render(t *testing.T, values string) *release {
	t.Helper()
	files, err := renderErr(values)
	if err != nil {
		t.Fatal(err)
	}
	r := &release{files: files}
	for name, text := range files {
		if strings.TrimSpace(text) == "" || strings.HasSuffix(name, "NOTES.txt") || strings.HasSuffix(name, ".tpl") {
			continue
		}
		var head struct {
			Kind string `json:"kind"`
		}
		if err := yaml.Unmarshal([]byte(text), &head); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		var into any
		switch head.Kind {
		case "Deployment":
			into = &r.deployment
		case "ConfigMap":
			into = &r.config
		case "ServiceAccount":
			r.account = new(corev1.ServiceAccount)
			into = r.account
		case "PodDisruptionBudget":
			r.disruption = new(policyv1.PodDisruptionBudget)
			into = r.disruption
		case "NetworkPolicy":
			r.network = new(networkingv1.NetworkPolicy)
			into = r.network
		case "ScaledObject":
			r.scaled = new(scaledObject)
			into = r.scaled
		case "PodMonitor":
			r.podMonitors++
			into = new(map[string]any)
		default:
			t.Fatalf("%s: an object of kind %q, which nobody expects\n%s", name, head.Kind, text)
		}
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
	}
	return r
}

func (r *release) container(t *testing.T) corev1.Container {
	t.Helper()
	cs := r.deployment.Spec.Template.Spec.Containers
	if len(cs) != 1 {
		t.Fatalf("%d containers", len(cs))
	}
	return cs[0]
}

// binary is pi-worker as this tree has it.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "pi-worker")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "pi-worker")
		build := exec.Command("go", "build", "-o", binary, "./cmd/pi-worker")
		build.Dir = root
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			panic(string(out))
		}
		return m.Run()
	}())
}

// load gives the mounted file to pi-worker, and returns the value of each key.
func (r *release) load(t *testing.T) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(r.config.Data["config.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "config", "--json", "--config", file)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	var refusal strings.Builder
	cmd.Stderr = &refusal
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("pi-worker refuses the chart's configuration: %s\n%s", refusal.String(), r.config.Data["config.yaml"])
	}
	var rows []struct{ Key, Value string }
	if err := json.Unmarshal(out, &rows); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, row := range rows {
		values[row.Key] = row.Value
	}
	return values
}

const everything = `
image: {repository: registry.example/pi-worker, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
imagePullSecrets: [{name: pull}]
nats:
  url: tls://nats-0.example:4222,tls://nats-1.example:4222
  prefix: team.blue
  replicas: 3
  credentials: {existingSecret: nats-worker, key: blue.creds}
  tls: {existingSecret: nats-tls, clientCertificate: true}
sessions: 20
graceSeconds: 120
drainSeconds: 20
config:
  log: {format: json, level: debug}
  worker: {max_attempts: 3}
  nats: {ack_wait: 10s}
  defaults: {model: gpt-5-mini}
  agents:
    coder: {model: qwen3-coder, base_url: "https://llm.example/v1", api_key_file: /run/secrets/pi-worker/llm, tools: [read, ls]}
secretEnv: [{name: OPENAI_API_KEY, secret: llm, key: openai}]
secretFiles: [{file: llm, secret: llm, key: qwen}]
env: {HTTPS_PROXY: "http://proxy:3128", PI_MCP_PORT: 7}
autoscaling:
  enabled: true
  minReplicas: 2
  maxReplicas: 30
  natsJetstream: {monitoringEndpoint: "nats-headless.nats:8222", account: BLUE}
networkPolicy:
  metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  natsTo: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: nats}}}]
  extraEgress: [{ports: [{protocol: TCP, port: 4318}]}]
metrics: {port: 9000, podMonitor: {enabled: true, labels: {release: prometheus}}}
serviceAccount: {annotations: {a: b}}
workspaceClaim: spaces
podAnnotations: {c: d}
podLabels: {e: f}
nodeSelector: {disk: ssd}
tolerations: [{key: agents, operator: Exists}]
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
priorityClassName: agents
`

const bare = `
networkPolicy: {enabled: false}
podDisruptionBudget: {enabled: false}
serviceAccount: {name: mine}
config: {}
resources: {}
`

var settings = map[string]string{"defaults": "", "everything": everything, "bare": bare,
	"prometheus": "autoscaling: {enabled: true, trigger: prometheus, prometheus: {serverAddress: 'http://prometheus:9090', matchers: 'namespace=\"agents\"', keepBusyWorkers: true}}"}

// each renders the chart with several values.
func each(t *testing.T, check func(*testing.T, *release)) {
	for name, values := range settings {
		t.Run(name, func(t *testing.T) { check(t, render(t, values)) })
	}
}

func TestObjectsSelectTheWorkersAndNothingElse(t *testing.T) {
	each(t, func(t *testing.T, r *release) {
		pod := r.deployment.Spec.Template
		selectors := []map[string]string{r.deployment.Spec.Selector.MatchLabels}
		if r.disruption != nil {
			selectors = append(selectors, r.disruption.Spec.Selector.MatchLabels)
		}
		if r.network != nil {
			selectors = append(selectors, r.network.Spec.PodSelector.MatchLabels)
		}
		for _, sel := range selectors {
			if len(sel) != 2 || sel["app.kubernetes.io/instance"] != "fleet" {
				t.Errorf("selector %v", sel)
			}
			for k, v := range sel {
				if pod.Labels[k] != v {
					t.Errorf("pods have %s=%q, the selector wants %q", k, pod.Labels[k], v)
				}
			}
		}
		if r.account != nil && r.account.Name != pod.Spec.ServiceAccountName {
			t.Errorf("pods run as %q, the account is %q", pod.Spec.ServiceAccountName, r.account.Name)
		}
		if r.scaled != nil && (r.scaled.Spec.ScaleTargetRef.Name != r.deployment.Name || r.deployment.Spec.Replicas != nil) {
			t.Errorf("scales %q; the deployment is %q with replicas %v", r.scaled.Spec.ScaleTargetRef.Name, r.deployment.Name, r.deployment.Spec.Replicas)
		}
		mounted := map[string]bool{}
		for _, v := range pod.Spec.Volumes {
			mounted[v.Name] = true
			if v.ConfigMap != nil && v.ConfigMap.Name != r.config.Name {
				t.Errorf("mounts ConfigMap %q, it is %q", v.ConfigMap.Name, r.config.Name)
			}
		}
		for _, m := range r.container(t).VolumeMounts {
			if !mounted[m.Name] {
				t.Errorf("no volume %q", m.Name)
			}
		}
	})
}

// The pod outlives the worker's own grace, by the time that handing over takes.
func TestPodOutlivesTheWorkersGrace(t *testing.T) {
	each(t, func(t *testing.T, r *release) {
		pod := r.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds
		grace, err := time.ParseDuration(r.load(t)["worker.grace"])
		if err != nil || pod == nil || float64(*pod) < grace.Seconds()+10 {
			t.Errorf("terminationGracePeriodSeconds %v, worker.grace %v (%v)", pod, grace, err)
		}
	})
}

func TestWorkersMayDoNothingButWork(t *testing.T) {
	each(t, func(t *testing.T, r *release) {
		pod, c := r.deployment.Spec.Template.Spec, r.container(t)
		sc := c.SecurityContext
		switch {
		case pod.SecurityContext == nil || !*pod.SecurityContext.RunAsNonRoot || *pod.SecurityContext.RunAsUser != 65532:
			t.Error("runs as root")
		case pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault:
			t.Error("no seccomp profile")
		case sc == nil || !*sc.ReadOnlyRootFilesystem || *sc.AllowPrivilegeEscalation || !slices.Contains(sc.Capabilities.Drop, "ALL") || len(sc.Capabilities.Add) > 0:
			t.Errorf("security context %+v", sc)
		case *pod.AutomountServiceAccountToken:
			t.Error("the pod has a token of the API server")
		}
		for _, m := range c.VolumeMounts {
			if !m.ReadOnly && m.Name != "tmp" && m.Name != "workspaces" {
				t.Errorf("%s can be written to", m.MountPath)
			}
		}
	})
}

// The paths are those of docs/metrics.md, the port is the one that the worker
// is told to open.
func TestProbesAskTheWorker(t *testing.T) {
	each(t, func(t *testing.T, r *release) {
		c := r.container(t)
		for _, p := range []struct {
			probe *corev1.Probe
			path  string
		}{{c.StartupProbe, "/healthz"}, {c.LivenessProbe, "/healthz"}, {c.ReadinessProbe, "/readyz"}} {
			if p.probe == nil || p.probe.HTTPGet == nil || p.probe.HTTPGet.Path != p.path || p.probe.HTTPGet.Port.String() != c.Ports[0].Name {
				t.Errorf("probe %+v, want %s", p.probe, p.path)
			}
		}
		port := ":" + itoa(c.Ports[0].ContainerPort)
		if got := r.load(t)["http.listen"]; got != port {
			t.Errorf("http.listen is %q, the port %q", got, port)
		}
	})
}

func TestConfigurationIsWhatTheValuesSay(t *testing.T) {
	r := render(t, everything)
	cfg := r.load(t)
	for key, want := range map[string]string{"nats.prefix": "team.blue", "nats.replicas": "3", "nats.ack_wait": "10s", "worker.sessions": "20",
		"worker.max_attempts": "3", "log.level": "debug", "agents.coder.model": "qwen3-coder"} {
		if cfg[key] != want {
			t.Errorf("%s is %q, want %q", key, cfg[key], want)
		}
	}
	c := r.container(t)
	files := map[string]string{}
	for _, key := range []string{"nats.creds", "nats.tls.ca", "nats.tls.cert", "nats.tls.key", "agents.coder.api_key_file", "worker.workspace.dir"} {
		files[key] = cfg[key]
	}
	for key, file := range files {
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.MountPath == file || strings.HasPrefix(file, m.MountPath+"/")
		}) {
			t.Errorf("%s is %q, where nothing is mounted", key, file)
		}
	}
	for _, text := range r.files {
		for _, word := range []string{"password:", "token:", "stringData", "kind: Secret\n"} {
			if strings.Contains(text, word) {
				t.Errorf("the chart writes a secret:\n%s", text)
			}
		}
	}
	// A new configuration is a new pod.
	sum := func(r *release) string { return r.deployment.Spec.Template.Annotations["checksum/config"] }
	if sum(r) == "" || sum(r) == sum(render(t, strings.Replace(everything, "sessions: 20", "sessions: 21", 1))) {
		t.Error("the pods do not change with the configuration")
	}
}

// What scales is waiting + in progress: the bell's consumer, whose un-acked
// messages KEDA counts too, or the metric that has both states.
func TestScalesOnWaitingAndInProgress(t *testing.T) {
	r := render(t, everything)
	got := r.scaled.Spec.Triggers[0]
	// subjects.Names.BellStream and subjects.ConsumerWorkers.
	if got.Type != "nats-jetstream" || got.Metadata["stream"] != "TEAM_BLUE_BELL" || got.Metadata["consumer"] != "workers" ||
		got.Metadata["account"] != "BLUE" || got.Metadata["lagThreshold"] != "15" {
		t.Errorf("trigger %+v", got)
	}
	r = render(t, settings["prometheus"])
	triggers := r.scaled.Spec.Triggers
	if len(triggers) != 2 || triggers[0].Metadata["threshold"] != "48" || triggers[1].Metadata["threshold"] != "1" {
		t.Fatalf("triggers %+v", triggers)
	}
	known := documented(t)
	for _, tr := range triggers {
		checkQuery(t, "scaledobject", tr.Metadata["query"], known)
	}
	if q := triggers[0].Metadata["query"]; strings.Contains(q, "state") {
		t.Errorf("%s leaves a state out", q)
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	for _, bad := range []string{
		"sesions: 3",
		"sessions: 0",
		"graceSeconds: 30s",
		"drainSeconds: 1",
		"config: {worker: {grace: 10m}}",
		"config: {worker: {sessions: 5}}",
		"config: {http: {listen: ':1'}}",
		"config: {nats: {url: 'nats://a'}}",
		"config: {nats: {password: hunter2}}",
		"env: {PI_WORKER_GRACE: 10m}",
		"env: {NATS_URL: 'nats://elsewhere'}",
		"env: {A B: c}",
		"nats: {url: 'nats://user:hunter2@nats:4222'}",
		"nats: {url: 'http://nats'}",
		"nats: {replicas: 2}",
		"nats: {prefix: 'a b'}",
		"nats: {credentials: {kind: password}}",
		"image: {digest: 'sha256:1'}",
		"secretEnv: [{name: OPENAI_API_KEY, value: sk-1}]",
		"secretFiles: [{file: ../x, secret: s, key: k}]",
		"autoscaling: {enabled: true, minReplicas: 5, maxReplicas: 2}",
		"autoscaling: {enabled: true, trigger: cpu}",
		"autoscaling: {enabled: true, trigger: prometheus}",
		"autoscaling: {enabled: true, prometheus: {keepBusyWorkers: true}}",
		"autoscaling: {natsJetstream: {monitoringEndpoint: 'http://nats:8222/jsz'}}",
		"podDisruptionBudget: {maxUnavailable: 0}",
		"metrics: {port: 80}",
		"podLabels: {app.kubernetes.io/name: other}",
	} {
		if _, err := renderErr(bad); err == nil {
			t.Errorf("accepted: %s", bad)
		}
	}
}

// With no peers nobody is let in; with peers, those.
func TestNetworkPolicyNamesItsPeers(t *testing.T) {
	r := render(t, "")
	if len(r.network.Spec.Ingress) != 0 || len(r.network.Spec.PolicyTypes) != 2 {
		t.Errorf("ingress %+v", r.network.Spec.Ingress)
	}
	for _, rule := range r.network.Spec.Egress {
		if len(rule.Ports) == 0 {
			t.Errorf("egress to every port: %+v", rule)
		}
		for _, to := range rule.To {
			if to.IPBlock != nil && !slices.Contains(to.IPBlock.Except, "169.254.0.0/16") {
				t.Errorf("reaches metadata services: %+v", to.IPBlock)
			}
		}
	}
	r = render(t, everything)
	if in := r.network.Spec.Ingress; len(in) != 1 || len(in[0].From) != 1 || in[0].Ports[0].Port.String() != "http" {
		t.Errorf("ingress %+v", in)
	}
	if r.podMonitors != 1 {
		t.Errorf("%d pod monitors", r.podMonitors)
	}
}
