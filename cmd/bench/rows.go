package main

import (
	"fmt"
	"time"

	"parley/cmd/parley/bench"
)

// row is one workload, with the figures that the table shows.
type row struct {
	name    string
	args    []string // of `parley bench`, without --duration
	seconds float64  // the measured time, as a multiple of --duration
	pipe    bool     // the bare pipe is measured too
	only    string   // the only store that is measured; "" for both
	cores   int      // cores of the server; 0 for one
	rounds  int      // the maximum number of rounds; 0 for no limit
	figures []figure
}

// figure is one line of the table.
type figure struct {
	name string
	unit string
	of   func(m *measured) (float64, bool) // false if the measurement has no such figure
	kind kind
}

// kind is the comparison of a figure with the figure of the bare pipe.
type kind int

const (
	alone      kind = iota // not compared
	ratio                  // divided by the figure of the pipe
	difference             // minus the figure of the pipe
)

// rows lists all rows, in the order of the table.
func rows() []*row {
	all := append(turnRows(), restingRows()...)
	for _, policy := range []string{"fifo", "priority", "semantic"} {
		for _, history := range []int{10, 10_000} {
			all = append(all, windowRow(policy, history))
		}
	}
	return all
}

// turnRows lists the rows in which all callers make turns.
func turnRows() []*row {
	return []*row{
		{
			name: "streams", args: []string{"streams", "-n", "200", "--tokens", "200", "--interval", "20ms"}, seconds: 2, pipe: true,
			figures: []figure{
				{"200 streams at 20 ms: CPU a token", "µs", server(func(s *bench.Server) float64 { return s.CPUPerToken }), ratio},
				{"… allocations a turn with its socket", "", allocations, ratio},
				{"… resident memory a live stream", "KiB", server(func(s *bench.Server) float64 { return s.ResidentEach / 1024 }), ratio},
				{"… first token p50", "ms", func(m *measured) (float64, bool) { return m.FirstToken.P50, true }, difference},
				{"… Redis' own CPU a watched turn of 200 tokens", "µs", redisCPU, alone},
			},
		},
		{
			name: "requests", args: []string{"requests", "-n", "64", "--tokens", "50", "--sessions", "2000"}, seconds: 1, pipe: true,
			figures: []figure{
				{"JSON request of 50 tokens, 64 callers: CPU", "µs", turnCPU, ratio},
				{"… allocations", "", allocations, ratio},
				{"… fdatasync a turn, GOMAXPROCS 1", "", syncs, alone},
				{"… Redis' own CPU a turn", "µs", redisCPU, alone},
			},
		},
		{
			name: "requests-2cores", args: []string{"requests", "-n", "64", "--tokens", "50", "--sessions", "2000"}, seconds: 1, only: "embedded", cores: 2, rounds: 3,
			figures: []figure{{"… fdatasync a turn, GOMAXPROCS 2", "", syncs, alone}},
		},
		{
			name: "one-caller", args: []string{"requests", "-n", "1", "--tokens", "50", "--sessions", "600"}, seconds: 1, pipe: true,
			figures: []figure{
				{"JSON request of 50 tokens, one caller: CPU", "µs", turnCPU, ratio},
				{"… time p50", "ms", func(m *measured) (float64, bool) { return m.Turn.P50, true }, ratio},
			},
		},
	}
}

// restingRows lists the rows in which most connections or requests make no turn.
func restingRows() []*row {
	return []*row{
		{
			name: "viewers", args: []string{"viewers", "-n", "1000", "--tokens", "100", "--interval", "40ms"}, seconds: 2, pipe: true,
			figures: []figure{{"1,000 viewers of a reply at 40 ms: CPU a delivery", "µs", server(func(s *bench.Server) float64 { return s.CPUPerToken }), ratio}},
		},
		{
			name: "idle", args: []string{"idle", "-n", "5000"}, seconds: 1, pipe: true, rounds: 3,
			figures: []figure{
				{"idle socket", "KiB", server(func(s *bench.Server) float64 { return s.ResidentEach / 1024 }), ratio},
				{"idle process, resident", "MB", func(m *measured) (float64, bool) { return float64(m.Start) / (1 << 20), m.Start > 0 }, alone},
			},
		},
		{
			name: "admissions", args: []string{"admissions", "-n", "8"}, seconds: 1, rounds: 3,
			figures: []figure{
				{"admission of a request: CPU", "µs", turnCPU, alone},
				{"… Redis' own CPU", "µs", redisCPU, alone},
			},
		},
	}
}

// windowRow returns the row for a turn in a session with a history. Most of the time goes into the creation of the history, so
// there is one round. With a short history, there are 2,000 sessions: few turns of the measured time then fall on one session, so
// that its history stays short.
func windowRow(policy string, history int) *row {
	sessions := 2000
	if history > 1000 {
		sessions = 1
	}
	name := fmt.Sprintf("turn in a session with %s messages, %s", count(history), policy)
	return &row{
		name: fmt.Sprintf("window-%s-%d", policy, history), seconds: 0.5, rounds: 1,
		args: []string{"requests", "-n", "1", "--tokens", "50", "--history", fmt.Sprint(history), "--policy", policy, "--sessions", fmt.Sprint(sessions)},
		figures: []figure{
			{name + ": CPU", "µs", turnCPU, alone},
			{"… allocations", "", allocations, alone},
		},
	}
}

// count formats a number of messages.
func count(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return number(float64(n))
}

// server returns a figure of the server's process.
func server(of func(s *bench.Server) float64) func(m *measured) (float64, bool) {
	return func(m *measured) (float64, bool) {
		if m.Server == nil {
			return 0, false
		}
		return of(m.Server), true
	}
}

var turnCPU = server(func(s *bench.Server) float64 { return s.CPUPerTurn })

func allocations(m *measured) (float64, bool) {
	if m.Server == nil || m.Server.AllocsPerTurn == nil {
		return 0, false
	}
	return *m.Server.AllocsPerTurn, true
}

func syncs(m *measured) (float64, bool) {
	if m.Server == nil || m.Server.SyncsPerTurn == nil {
		return 0, false
	}
	return *m.Server.SyncsPerTurn, true
}

func redisCPU(m *measured) (float64, bool) {
	if m.Redis == nil {
		return 0, false
	}
	return m.Redis.CPUPerTurn, true
}

// arguments returns the arguments of `parley bench` for a row. unit is the value of --duration.
func (r *row) arguments(unit time.Duration) []string {
	measuredTime := time.Duration(r.seconds * float64(unit)).Round(time.Millisecond)
	return append(append([]string{}, r.args...), "--duration", measuredTime.String(), "--warmup", "1s")
}
