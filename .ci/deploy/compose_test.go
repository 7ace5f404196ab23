package deploy

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
)

// compose.yaml is read by the parser of Compose v2; .ci/compose gives it to
// docker-compose 1.29 where that is installed.
func TestComposeV2ReadsEveryProfile(t *testing.T) {
	for _, tt := range []struct {
		profiles []string
		want     []string
	}{
		{nil, []string{"nats", "worker"}},
		{[]string{"cluster"}, []string{"cluster-nats-1", "cluster-nats-2", "cluster-nats-3", "cluster-worker", "nats", "worker"}},
		{[]string{"observability"}, []string{"grafana", "nats", "prometheus", "worker"}},
	} {
		opts, err := cli.NewProjectOptions([]string{filepath.Join(root, "compose.yaml")}, cli.WithName("pi"), cli.WithProfiles(tt.profiles))
		if err != nil {
			t.Fatal(err)
		}
		project, err := opts.LoadProject(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(project.Services)); !slices.Equal(got, tt.want) {
			t.Errorf("profiles %v: services %v, want %v", tt.profiles, got, tt.want)
		}
		for name, s := range project.Services {
			for _, v := range s.Volumes {
				if v.Type == "bind" && !exists(v.Source) {
					t.Errorf("%s mounts %s, which does not exist", name, v.Source)
				}
			}
			if s.StopGracePeriod != nil && s.StopGracePeriod.String() != "45s" {
				t.Errorf("%s stops after %v", name, s.StopGracePeriod)
			}
		}
	}
}
