package session

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/internal/natstest"
)

// TestPlainAckIsWhatTheServerSays: the short way and JSON's read the same from
// what this server writes; everything else goes the long way.
func TestPlainAckIsWhatTheServerSays(t *testing.T) {
	nc := natstest.Start(t, nil).Connect()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ACKS", Subjects: []string{"acks"}}); err != nil {
		t.Fatal(err)
	}
	resp, err := nc.RequestMsgWithContext(t.Context(), &nats.Msg{Subject: "acks", Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	var want jetstream.PubAck
	if err := json.Unmarshal(resp.Data, &want); err != nil {
		t.Fatal(err)
	}
	if got := plainAck(resp.Data); got == nil || *got != want || got.Stream != "ACKS" || got.Sequence != 1 {
		t.Errorf("%s: got %+v, want %+v", resp.Data, got, want)
	}
	for _, other := range []string{
		"", "{}", `{"stream":"A","seq":0}`, `{"stream":"","seq":1}`, `{"stream":"A","seq":1,"duplicate":true}`,
		`{"stream":"A","seq":-1}`, `{"stream":"A","seq":1`, `{"stream":"A\\"","seq":1}`, `{"stream":"A","domain":"d","seq":1}`,
		`{"error":{"code":400,"err_code":10071},"stream":"A","seq":0}`, `{"stream":"A","seq":18446744073709551616}`,
	} {
		if got := plainAck([]byte(other)); got != nil {
			t.Errorf("%s was read as %+v", other, got)
		}
	}
}
