package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/pi-worker/pi-worker/client"
)

// operatingCommands are for those who run the fleet.
func (a *app) operatingCommands() []*cobra.Command {
	return []*cobra.Command{a.topCommand(), a.doctorCommand()}
}

func (a *app) topCommand() *cobra.Command {
	var every time.Duration
	var sort string
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the fleet's sessions, live",
		Long: `top shows what ps lists, again and again: sessions, their workers, turns, tools
and cost. Keys: s changes the order, f the states shown, arrows and pages move,
q ends. Without a terminal it prints the list once.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.top(cmd.Context(), every, sort) },
	}
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often it looks")
	cmd.Flags().StringVar(&sort, "sort", "state", "order: "+sortNames())
	return cmd
}

func (a *app) top(ctx context.Context, every time.Duration, sort string) error {
	if !isTerminal(a.out) || !isTerminal(a.in) {
		return a.ps(ctx, false, sort, nil)
	}
	if err := sortSessions(nil, sort); err != nil {
		return err
	}
	c, closeAll, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	m := &fleetView{sort: sort, every: max(every, 100*time.Millisecond), load: func() ([]*client.SessionInfo, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return c.Sessions(ctx)
	}}
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(a.in), tea.WithOutput(a.out)).Run()
	return err
}

// loaded is a list of sessions that has arrived.
type loaded struct {
	sessions []*client.SessionInfo
	at       time.Time
	took     time.Duration
	err      error
}

// fleetView is top's screen.
type fleetView struct {
	load          func() ([]*client.SessionInfo, error)
	every         time.Duration
	sort, state   string // state "" shows all
	width, height int
	offset        int
	last          loaded
}

// orders and states are what s and f go through.
var (
	topOrders = []string{"state", "age", "cost", "tokens", "turn", "worker", "session"}
	topStates = []string{"", client.StateLost, client.StateRunning, client.StateApproval, client.StateWaiting, client.StateIdle}
)

func (m *fleetView) Init() tea.Cmd { return m.fetch }

func (m *fleetView) fetch() tea.Msg {
	begun := time.Now()
	sessions, err := m.load()
	return loaded{sessions, time.Now(), time.Since(begun), err}
}

func (m *fleetView) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case loaded:
		if msg.err != nil {
			msg.sessions, msg.at = m.last.sessions, m.last.at // the old list, with the trouble
		}
		m.last = msg
		return m, tea.Tick(m.every, func(time.Time) tea.Msg { return m.fetch() })
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

func (m *fleetView) key(name string) tea.Cmd {
	page := max(m.rows()-1, 1)
	switch name {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "s":
		m.sort = after(topOrders, m.sort)
	case "f":
		m.state, m.offset = after(topStates, m.state), 0
	case "down", "j":
		m.offset++
	case "up", "k":
		m.offset--
	case "pgdown", "space":
		m.offset += page
	case "pgup":
		m.offset -= page
	case "home":
		m.offset = 0
	}
	m.offset = max(m.offset, 0)
	return nil
}

// after is the next of a list that goes round.
func after(list []string, now string) string { return list[(slices.Index(list, now)+1)%len(list)] }

// rows are the sessions that the screen has room for.
func (m *fleetView) rows() int { return max(m.height-4, 1) }

func (m *fleetView) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	return v
}

// screen is the whole picture as plain text, no line wider than the terminal.
func (m *fleetView) screen() string {
	if m.height == 0 || m.last.at.IsZero() && m.last.err == nil {
		return "looking …"
	}
	var b strings.Builder
	b.WriteString(m.summary() + "\n\n")
	sessions := slices.Clone(m.last.sessions)
	if m.state != "" {
		sessions = slices.DeleteFunc(sessions, func(s *client.SessionInfo) bool { return s.State != m.state })
	}
	_ = sortSessions(sessions, m.sort) // a name of ours
	m.offset = min(m.offset, max(len(sessions)-m.rows(), 0))
	shown := sessions[m.offset:min(m.offset+m.rows(), len(sessions))]
	writeTop(&b, shown, m.last.at)
	fmt.Fprintf(&b, "%d–%d of %d · s order: %s · f state: %s · q quit", min(m.offset+1, len(sessions)), m.offset+len(shown), len(sessions), m.sort, dashOr(m.state, "all"))
	return cutLines(b.String(), m.width)
}

func dashOr(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// summary is the fleet in one line.
func (m *fleetView) summary() string {
	count := map[string]int{}
	workers := map[string]bool{}
	var tokens int64
	var cost float64
	for _, s := range m.last.sessions {
		count[s.State]++
		tokens += s.Tokens
		cost += s.Cost
		if s.State == client.StateRunning {
			workers[s.Worker] = true
		}
	}
	line := fmt.Sprintf("%d sessions: %d running, %d waiting, %d idle, %d lost · %d workers busy · %d tokens, $%.2f",
		len(m.last.sessions), count[client.StateRunning], count[client.StateWaiting], count[client.StateIdle], count[client.StateLost],
		len(workers), tokens, cost)
	if m.last.err != nil {
		line += " · " + safeLine(sentence(m.last.err), 0)
	}
	return line
}

func writeTop(w io.Writer, sessions []*client.SessionInfo, now time.Time) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SESSION\tSTATE\tWORKER\tTURN\tTOOL\tAGE\tTOKENS\tCOST\tMODEL")
	for _, s := range sessions {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s\t%s\t%d\t$%.4f\t%s\n", safeLine(s.Session, 24), s.State, dash(safeLine(s.Worker, 20)), s.Turn,
			dash(safeLine(s.Tool, 16)), ageOf(now, s.Updated), s.Tokens, s.Cost, dash(safeLine(s.Model, 20)))
	}
	tw.Flush()
}

// cutLines cuts each line to the width in runes; the texts have no wide ones
// but what a model's name may hold.
func cutLines(text string, width int) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if r := []rune(line); width > 0 && len(r) > width {
			lines[i] = string(r[:width-1]) + "…"
		}
	}
	return strings.Join(lines, "\n")
}
