package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pi-worker/pi-worker/client"
)

// sessionOrder compares two sessions; what a reader looks for comes first.
type sessionOrder func(x, y *client.SessionInfo) int

// sessionOrders are what --sort takes.
var sessionOrders = map[string]sessionOrder{
	"state": func(x, y *client.SessionInfo) int {
		return cmp.Or(cmp.Compare(stateRank(x.State), stateRank(y.State)), y.Updated.Compare(x.Updated))
	},
	"age":     func(x, y *client.SessionInfo) int { return x.Updated.Compare(y.Updated) },
	"cost":    func(x, y *client.SessionInfo) int { return cmp.Compare(y.Cost, x.Cost) },
	"tokens":  func(x, y *client.SessionInfo) int { return cmp.Compare(y.Tokens, x.Tokens) },
	"turn":    func(x, y *client.SessionInfo) int { return cmp.Compare(y.Turn, x.Turn) },
	"worker":  func(x, y *client.SessionInfo) int { return cmp.Compare(x.Worker, y.Worker) },
	"session": func(x, y *client.SessionInfo) int { return cmp.Compare(x.Session, y.Session) },
}

// sortNames lists the orders for help and errors.
func sortNames() string { return "state, age, cost, tokens, turn, worker or session" }

// sortSessions puts them in the named order, equal ones by name.
func sortSessions(sessions []*client.SessionInfo, by string) error {
	order, ok := sessionOrders[by]
	if !ok {
		return usageErrorf("--sort is %s, not %q", sortNames(), by)
	}
	slices.SortFunc(sessions, func(x, y *client.SessionInfo) int {
		return cmp.Or(order(x, y), cmp.Compare(x.Session, y.Session))
	})
	return nil
}

// inStates keeps the sessions of the given states; none keeps all.
func inStates(sessions []*client.SessionInfo, states []string) ([]*client.SessionInfo, error) {
	known := []string{client.StateRunning, client.StateApproval, client.StateWaiting, client.StateIdle, client.StateLost}
	for _, s := range states {
		if !slices.Contains(known, s) {
			return nil, usageErrorf("--state is %s, not %q", strings.Join(known, ", "), s)
		}
	}
	if len(states) == 0 {
		return sessions, nil
	}
	return slices.DeleteFunc(sessions, func(s *client.SessionInfo) bool { return !slices.Contains(states, s.State) }), nil
}
