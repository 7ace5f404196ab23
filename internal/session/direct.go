package session

import (
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Headers of a direct get's answer.
const (
	headerStatus      = "Status"
	headerDescription = "Description"
)

func parseDirect(msg *nats.Msg) (*message, error) {
	if status := msg.Header.Get(headerStatus); status != "" {
		if status == "404" {
			return nil, errNotFound
		}
		return nil, fmt.Errorf("direct get: %s %s", status, msg.Header.Get(headerDescription))
	}
	seq, err := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("direct get: no sequence: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, msg.Header.Get(jetstream.TimeStampHeaer))
	if err != nil {
		return nil, fmt.Errorf("direct get: no time: %w", err)
	}
	return &message{
		subject: msg.Header.Get(jetstream.SubjectHeader), seq: seq, time: at,
		header: msg.Header, data: msg.Data,
	}, nil
}
