package config

import (
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		text string
		says string // "" allowed
	}{
		{"http: {listen: ':8080', debug_listen: '127.0.0.1:6060'}", ""},
		{"http: {debug_listen: 'localhost:6060'}", ""},
		{"http: {debug_listen: '[::1]:0'}", ""},
		{"http: {listen: 8080}", "http.listen"},
		{"http: {listen: 'localhost'}", "host:port"},
		{"http: {listen: ':70000'}", "host:port"},
		{"http: {debug_listen: ':6060'}", "loopback"},
		{"http: {debug_listen: '10.0.0.1:6060'}", "loopback"},
		{"http: {debug_listen: 'example.org:6060'}", "loopback"},
	} {
		isolate(t)
		write(t, "pi-worker.yaml", c.text)
		_, err := load(t)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.text, err, c.says)
		}
	}
}
