package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// A pull waits this long at the server before it is made again.
	pullExpiry = 15 * time.Second
	// The server says this often that a pull still waits; silence for two of
	// them means that the pull is lost.
	pullHeartbeat = 1500 * time.Millisecond
)

var (
	errPullExpired = errors.New("session: pull expired")
	errNoneWanted  = errors.New("session: no message is wanted")
	errPullLost    = errors.New("session: consumer is silent")
)

// puller pulls from a durable consumer, only while it is asked to: whoever
// does not ask holds nothing that another worker could have.
type puller struct {
	store    *Store
	stream   string
	consumer string
	trouble  *atomic.Pointer[error] // told by pulls: why it can't, nil if it can
	sub      *nats.Subscription     // nil before the first pull
	waiting  int                    // messages that the last pull may still bring
}

// next gives one message of those that were pulled. errPullExpired says that there was none; every other error means
// that consumer, stream or server are in trouble.
func (p *puller) next(ctx context.Context) (*nats.Msg, error) {
	for {
		m, err := p.receive(ctx)
		if err != nil {
			p.stop()
			return nil, err
		}
		status := m.Header.Get(headerStatus)
		switch {
		case m.Reply != "" && status == "":
			p.waiting--
			return m, nil
		case status == "100": // the pull still waits: consumer and stream are there
			p.trouble.Store(nil)
		case status == "404", status == "408":
			p.waiting = 0
			return nil, errPullExpired
		default:
			p.stop()
			if status == "503" {
				return nil, nats.ErrNoResponders
			}
			return nil, fmt.Errorf("pulling from %s/%s: %s %s", p.stream, p.consumer, status, m.Header.Get(headerDescription))
		}
	}
}

// receive waits for anything at all; silence is errPullLost.
func (p *puller) receive(ctx context.Context) (*nats.Msg, error) {
	quiet, cancel := context.WithTimeout(ctx, 2*pullHeartbeat+pullHeartbeat/2)
	defer cancel()
	m, err := p.sub.NextMsgWithContext(quiet)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, errPullLost
	}
	return m, err
}

// pull asks for up to so many messages.
func (p *puller) pull(batch int) error {
	if batch == 0 {
		return errNoneWanted
	}
	if p.sub == nil {
		sub, err := p.store.nc.SubscribeSync(nats.NewInbox())
		if err != nil {
			return err
		}
		p.sub = sub
	}
	req, err := json.Marshal(struct {
		Batch     int           `json:"batch"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{batch, pullExpiry, pullHeartbeat})
	if err != nil {
		return err
	}
	p.waiting = batch
	return p.store.nc.PublishRequest(p.store.api+"CONSUMER.MSG.NEXT."+p.stream+"."+p.consumer, p.sub.Subject, req)
}

// stop takes the pull back. Messages that came too late go back to the
// consumer at once instead of waiting for their AckWait.
func (p *puller) stop() {
	if p.sub == nil {
		return
	}
	sub := p.sub
	p.sub, p.waiting = nil, 0
	// The pull's reply subject has no interest any more once the server has
	// seen this, so it brings nothing new.
	if err := sub.Drain(); err != nil {
		return // the connection is closed, the server knows
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainWait)
	defer cancel()
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return
		}
		if m.Reply != "" && m.Header.Get(headerStatus) == "" {
			if err := m.Respond([]byte(ackNak)); err != nil {
				return
			}
		}
	}
}

// drainWait is how long a drained subscription may still bring something.
const drainWait = 100 * time.Millisecond
