// Command wget fetches its last argument and ends with 0 if the answer is 200.
// It stands in for busybox's in the image that .ci/nats-image builds, where
// compose.yaml's health check asks for it.
package main

import (
	"context"
	"net/http"
	"os"
	"time"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, os.Args[len(os.Args)-1], nil)
	if err != nil {
		os.Exit(2)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		os.Exit(1)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		os.Exit(1)
	}
}
