package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Report has the figures of one run. Its JSON form is the output of --json.
type Report struct {
	Workload string         `json:"workload"`
	URL      string         `json:"url"`
	Started  time.Time      `json:"started"` // of the measured time
	Seconds  float64        `json:"seconds"` // the measured time
	Settings map[string]any `json:"settings"`

	Turns        int64    `json:"turns"`        // that ended in the measured time; for admissions and keys: requests
	Failed       int64    `json:"failed"`       // since the load began
	Errors       []string `json:"errors"`       // the first different errors
	Tokens       float64  `json:"tokens"`       // of reply text that arrived in the measured time, for all viewers together
	Frames       int64    `json:"frames"`       // that carried this text
	LateSessions int      `json:"lateSessions"` // sessions that had to be created under load, because --sessions was too low

	FirstToken *Quantiles `json:"firstToken"` // from the send to the first text; null for workloads other than streams
	Turn       *Quantiles `json:"turn"`       // from the send to the end of the reply; null if no turn ended

	ClientCPU float64 `json:"clientCPU"` // share of one core that the load generator used
	Server    *Server `json:"server"`    // null if the server's process is unknown or on another machine
	Redis     *Redis  `json:"redis"`     // null without --redis
}

// Server has the figures of the server's process over the measured time.
type Server struct {
	PID               int      `json:"pid"`
	CPUSeconds        float64  `json:"cpuSeconds"`
	CPUPerTurn        float64  `json:"cpuMicrosecondsPerTurn"`
	CPUPerToken       float64  `json:"cpuMicrosecondsPerToken"`
	AllocsPerTurn     *float64 `json:"allocationsPerTurn"` // null if /metrics does not say
	SyncsPerTurn      *float64 `json:"fdatasyncPerTurn"`   // null without an embedded store
	WrittenPerTurn    float64  `json:"bytesWrittenPerTurn"`
	WriteCallsPerTurn float64  `json:"writeCallsPerTurn"`
	ResidentIdle      int64    `json:"residentIdle"`   // bytes, before the load
	Resident          int64    `json:"resident"`       // median under load
	ResidentEach      float64  `json:"residentEach"`   // growth for each stream, viewer or idle socket
	Unit              string   `json:"residentEachOf"` // what ResidentEach counts
}

// Redis has the figures of the server's Redis over the measured time.
type Redis struct {
	CPUSeconds     float64            `json:"cpuSeconds"`
	CPUPerTurn     float64            `json:"cpuMicrosecondsPerTurn"`
	ScriptsPerTurn float64            `json:"scriptMicrosecondsPerTurn"` // time in EVALSHA and FCALL
	CallsPerTurn   map[string]float64 `json:"callsPerTurn"`              // by command, with the commands of scripts
	Resident       int64              `json:"resident"`
}

// report computes the figures between two samples.
func (r *run) report(workload string, before, after sample, idle int64, resident []int64) *Report {
	r.mu.Lock()
	errors := slices.Clone(r.errors)
	r.mu.Unlock()
	seconds := after.at.Sub(before.at).Seconds()
	turns := after.turns - before.turns
	report := &Report{
		Workload: workload, URL: r.client.target.URL, Started: before.at.UTC(), Seconds: seconds, Settings: map[string]any{},
		Turns: turns, Failed: after.failed, Errors: errors, Frames: after.frames - before.frames,
		Tokens: r.tokens(after.bytes - before.bytes), LateSessions: r.sessions.createdLate(),
		FirstToken: r.first.quantiles(), Turn: r.whole.quantiles(),
		ClientCPU: (after.own - before.own).Seconds() / seconds,
	}
	if r.server != nil {
		report.Server = r.serverFigures(report, before, after)
		report.Server.ResidentIdle, report.Server.Resident = idle, median(resident)
	}
	if r.Target.Redis != "" {
		report.Redis = redisFigures(turns, before.redis, after.redis)
	}
	return report
}

// tokens converts bytes of text to tokens, by the replies that have ended.
func (r *run) tokens(bytes int64) float64 {
	ended := r.endedBytes.Load()
	if ended == 0 {
		return 0
	}
	return float64(bytes) * float64(r.endedTokens.Load()) / float64(ended)
}

func (r *run) serverFigures(report *Report, before, after sample) *Server {
	turns := report.Turns
	cpu := (after.server.cpu - before.server.cpu).Seconds()
	s := &Server{
		PID: r.server.pid, CPUSeconds: cpu, CPUPerTurn: per(cpu*1e6, float64(turns)), CPUPerToken: per(cpu*1e6, report.Tokens),
		WrittenPerTurn:    per(float64(after.server.written-before.server.written), float64(turns)),
		WriteCallsPerTurn: per(float64(after.server.writeCalls-before.server.writeCalls), float64(turns)),
	}
	if before.hasHeap && after.hasHeap && turns > 0 {
		s.AllocsPerTurn = new(per(after.mallocs-before.mallocs, float64(turns)))
	}
	if r.server.bolt != "" && turns > 0 {
		s.SyncsPerTurn = new(per(2*float64(after.server.transactions-before.server.transactions), float64(turns)))
	}
	return s
}

func redisFigures(turns int64, before, after redisUsage) *Redis {
	cpu := (after.cpu - before.cpu).Seconds()
	figures := &Redis{
		CPUSeconds: cpu, CPUPerTurn: per(cpu*1e6, float64(turns)), CallsPerTurn: make(map[string]float64), Resident: after.resident,
		ScriptsPerTurn: per(float64((after.inside - before.inside).Microseconds()), float64(turns)),
	}
	for command, calls := range after.calls {
		if n := calls - before.calls[command]; n > 0 && command != "info" {
			figures.CallsPerTurn[command] = per(float64(n), float64(turns))
		}
	}
	return figures
}

// per divides, and returns 0 if there is nothing to divide by.
func per(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func median[T int64 | float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Err returns an error if a turn has failed, or if nothing was measured. Such figures must not be used.
func (r *Report) Err() error {
	switch {
	case r.Failed > 0:
		return fmt.Errorf("%d turns failed and %d ended: %s", r.Failed, r.Turns, strings.Join(r.Errors, "; "))
	case r.Turns == 0 && r.Workload != workloadIdle:
		return errors.New("no turn ended in the measured time: set a longer --duration")
	}
	return nil
}

// Write prints the figures.
func (r *Report) Write(w io.Writer) {
	line := func(name, format string, about ...any) {
		fmt.Fprintf(w, "%-12s %s\n", name, fmt.Sprintf(format, about...))
	}
	line(r.Workload, "%s, %.1f s", r.URL, r.Seconds)
	line("turns", "%d (%.1f/s), %d failed", r.Turns, float64(r.Turns)/r.Seconds, r.Failed)
	if r.Tokens > 0 {
		line("tokens", "%.0f (%.0f/s) in %d frames", r.Tokens, r.Tokens/r.Seconds, r.Frames)
	}
	writeQuantiles(line, "first token", r.FirstToken)
	writeQuantiles(line, "turn", r.Turn)
	if s := r.Server; s != nil {
		line("server", "process %d: %.0f %% of a core, %s", s.PID, 100*s.CPUSeconds/r.Seconds, strings.Join(s.each(r), ", "))
		line("memory", "%.1f MB resident, %.1f MB before the load%s", mega(s.Resident), mega(s.ResidentIdle), s.growth())
	}
	if d := r.Redis; d != nil {
		line("Redis", "%.0f %% of a core, %.0f µs a turn, of which %.0f µs in scripts; %s a turn; %.1f MB resident",
			100*d.CPUSeconds/r.Seconds, d.CPUPerTurn, d.ScriptsPerTurn, d.commands(), mega(d.Resident))
	}
	line("client", "%.0f %% of a core", 100*r.ClientCPU)
	if r.LateSessions > 0 {
		line("note", "%d sessions were created under load: set --sessions higher", r.LateSessions)
	}
	for _, e := range r.Errors {
		line("error", "%s", e)
	}
}

func writeQuantiles(line func(name, format string, about ...any), name string, q *Quantiles) {
	if q != nil {
		line(name, "p50 %.2f ms, p90 %.2f ms, p99 %.2f ms, max %.2f ms", q.P50, q.P90, q.P99, q.Max)
	}
}

// each lists the figures of a turn and of a token, as texts.
func (s *Server) each(r *Report) (all []string) {
	if r.Turns > 0 {
		all = append(all, fmt.Sprintf("%.0f µs a turn", s.CPUPerTurn))
	}
	if r.Tokens > 0 {
		all = append(all, fmt.Sprintf("%.2f µs a token", s.CPUPerToken))
	}
	if s.AllocsPerTurn != nil {
		all = append(all, fmt.Sprintf("%.0f allocations a turn", *s.AllocsPerTurn))
	}
	if s.SyncsPerTurn != nil {
		all = append(all, fmt.Sprintf("%.2f fdatasync a turn", *s.SyncsPerTurn))
	}
	return append(all, fmt.Sprintf("%.0f bytes written and %.1f write calls a turn", s.WrittenPerTurn, s.WriteCallsPerTurn))
}

func (s *Server) growth() string {
	if s.Unit == "" {
		return ""
	}
	return fmt.Sprintf(", %.1f KiB for each %s", s.ResidentEach/1024, s.Unit)
}

// commands lists the commands of a turn, the most frequent first.
func (d *Redis) commands() string {
	type call struct {
		name string
		n    float64
	}
	var all []call
	for name, n := range d.CallsPerTurn {
		all = append(all, call{name, n})
	}
	slices.SortFunc(all, func(a, b call) int {
		if a.n != b.n {
			return int(1e6 * (b.n - a.n))
		}
		return strings.Compare(a.name, b.name)
	})
	var texts []string
	for _, c := range all[:min(8, len(all))] {
		texts = append(texts, fmt.Sprintf("%.1f %s", c.n, c.name))
	}
	return strings.Join(texts, ", ")
}

func mega(n int64) float64 { return float64(n) / (1 << 20) }

// Write prints the cost at each size.
func (g *Growth) Write(w io.Writer) {
	fmt.Fprintf(w, "%-10s µs of CPU for %s\n", g.Dimension, g.What)
	for _, p := range g.Points {
		fmt.Fprintf(w, "%-10d %s\n", p.Size, trim(p.Cost))
	}
}
