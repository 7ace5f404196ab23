package natsd

import (
	"fmt"
	"log/slog"
	"sync"
)

// logger passes the server's lines to slog and remembers why it gave up.
type logger struct {
	log *slog.Logger

	dead chan struct{} // closed at the first fatal line

	mu   sync.Mutex
	last string // last error or fatal line
}

func (l *logger) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *logger) keep(format string, v []any) string {
	line := fmt.Sprintf(format, v...)
	l.mu.Lock()
	l.last = line
	l.mu.Unlock()
	return line
}

func (l *logger) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Warnf(format string, v ...any)   { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l *logger) Errorf(format string, v ...any)  { l.log.Error(l.keep(format, v)) }

// Fatalf is how the server says that it gives up; it does not exit.
func (l *logger) Fatalf(format string, v ...any) {
	l.log.Error(l.keep(format, v))
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.dead:
	default:
		close(l.dead)
	}
}

// Debugf and Tracef are switched off at the server.
func (l *logger) Debugf(string, ...any) {}

// Tracef discards.
func (l *logger) Tracef(string, ...any) {}
