// Package integration has tests alone: the product as it is deployed, in
// containers. Its tests need the build tag integration and Docker:
//
//	go test -tags integration ./internal/integration/...
//
// They run the NATS image that compose.yaml names and the worker's own image,
// with workers killed and brokers stopped, paused and cut off the network.
// Where no registry can be reached, .ci/nats-image has built the NATS image
// under the same name. Without Docker they are skipped and say so;
// with PI_INTEGRATION=required, as CI sets it where there is Docker, they fail.
package integration
