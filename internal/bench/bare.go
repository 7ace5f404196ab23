package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// bareStream takes what the bare program publishes.
const bareStream = "BARE"

// bareMain is the floor: it reads the same HTTP streams with a minimal reader
// and publishes each delta, unfenced and asynchronously. It knows neither
// messages nor tools nor errors. The command is "run sessions tokens turns
// pace-µs stamp".
func bareMain() error {
	cfg, err := readChildConfig()
	if err != nil {
		return err
	}
	stop, err := profile(cfg.Profiles, "bare")
	if err != nil {
		return err
	}
	defer stop()
	nc, err := nats.Connect(cfg.NATS)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000))
	if err != nil {
		return err
	}
	_, err = js.CreateOrUpdateStream(context.Background(), jetstream.StreamConfig{Name: bareStream, Subjects: []string{"bare.>"}})
	if err != nil {
		return err
	}
	b := &bare{js: js, model: cfg.Model, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096}}}
	return serveRole("ready", func(command string, st *stats) error {
		if !strings.HasPrefix(command, "run ") {
			return nil
		}
		var sessions int
		var a answer
		var pace int64
		if _, err := fmt.Sscanf(command, "run %d %d %d %d %t", &sessions, &a.tokens, &a.turns, &pace, &a.stamp); err != nil {
			return err
		}
		a.pace = time.Duration(pace) * time.Microsecond
		begun := time.Now()
		err := b.run(sessions, a)
		st.Events, st.Duration = int(b.events.Swap(0)), time.Since(begun)
		return err
	})
}

type bare struct {
	js     jetstream.JetStream
	client *http.Client
	model  string
	events atomic.Int64
}

func (b *bare) run(sessions int, a answer) error {
	var wg sync.WaitGroup
	errs := make([]error, sessions)
	for s := range sessions {
		wg.Go(func() {
			for turn := range a.turns {
				if errs[s] = b.turn(s, turn, a); errs[s] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	<-b.js.PublishAsyncComplete()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// turn asks once and publishes each delta.
func (b *bare) turn(s, turn int, a answer) error {
	body := `{"messages":[{"role":"user","content":"` + a.prompt() + `"}` + strings.Repeat(`,{"role":"tool"}`, turn) + `]}`
	resp, err := b.client.Post(b.model+"/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	subject := "bare." + strconv.Itoa(s)
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := in.ReadSlice('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		_, rest, ok := bytes.Cut(line, []byte(`"content":"`))
		if !ok {
			continue
		}
		delta, _, _ := bytes.Cut(rest, []byte{'"'})
		msg := &nats.Msg{Subject: subject}
		if a.stamp {
			msg.Data = append(strconv.AppendInt(nil, time.Now().UnixNano(), 10), ' ')
		}
		msg.Data = append(append(append(msg.Data, `{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"`...), delta...), `"}}`...)
		if _, err := b.js.PublishMsgAsync(msg, jetstream.WithStallWait(readyTime)); err != nil {
			return err
		}
		b.events.Add(1)
	}
}
