package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrLimits: a limit below 0.
var ErrLimits = errors.New("client: a limit must not be below 0")

// Limits end the run of a prompt, with what there is by then and the outcome
// "limit". They lower those of the agent's profile and never raise them; a
// field that is 0 asks for nothing.
type Limits struct {
	Turns          int // answers of the model
	ToolCalls      int
	IdenticalCalls int           // calls of one tool with the same arguments
	WallTime       time.Duration // from the run's start, whoever goes on with it
	Tokens         int64         // input and output of all answers
	Cost           float64       // US dollars
	TreeTokens     int64         // as Tokens, with all runs below this one
	TreeCost       float64       // as Cost, with all runs below this one
}

// MarshalJSON writes them as they are on the wire, without those that ask for
// nothing.
func (l Limits) MarshalJSON() ([]byte, error) {
	wall := ""
	if l.WallTime != 0 {
		wall = l.WallTime.String()
	}
	return json.Marshal(struct {
		Turns          int     `json:"turns,omitempty"`
		ToolCalls      int     `json:"toolCalls,omitempty"`
		IdenticalCalls int     `json:"identicalCalls,omitempty"`
		WallTime       string  `json:"wallTime,omitempty"`
		Tokens         int64   `json:"tokens,omitempty"`
		Cost           float64 `json:"cost,omitempty"`
		TreeTokens     int64   `json:"treeTokens,omitempty"`
		TreeCost       float64 `json:"treeCost,omitempty"`
	}{l.Turns, l.ToolCalls, l.IdenticalCalls, wall, l.Tokens, l.Cost, l.TreeTokens, l.TreeCost})
}

func (l *Limits) check() error {
	if math.IsInf(l.Cost, 0) || math.IsNaN(l.Cost) || math.IsInf(l.TreeCost, 0) || math.IsNaN(l.TreeCost) {
		return fmt.Errorf("%w, and must be finite: %+v", ErrLimits, *l)
	}
	if l.Turns < 0 || l.ToolCalls < 0 || l.IdenticalCalls < 0 || l.WallTime < 0 ||
		l.Tokens < 0 || l.Cost < 0 || l.TreeTokens < 0 || l.TreeCost < 0 {
		return fmt.Errorf("%w: %+v", ErrLimits, *l)
	}
	return nil
}
