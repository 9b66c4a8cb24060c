package bench

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

func TestScriptedModel_RepliesWhatMessageAsks(t *testing.T) {
	for _, test := range []struct {
		body           string
		tokens, events int
	}{
		{`{"messages":[{"role":"user","content":"say 7 every 0s"},{"role":"user","content":"say 3 every 1ms"}],"stream":true}`, 3, 3},
		{`{"messages":[{"role":"user","content":"say 4"}],"stream":true,"stream_options":{"include_usage":true}}`, 4, 4},
		{`{"messages":[{"role":"user","content":"Hello!"}],"stream":true}`, 2, 2},
		{`{"messages":[{"role":"user","content":"say nothing"}],"stream":true}`, 2, 2},
		{`{"messages":[{"role":"user","content":"say 5 every 1ms"}]}`, 5, 0},
	} {
		w := httptest.NewRecorder()
		ScriptedModel{Default: Reply{Tokens: 2}}.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(test.body)))
		got := w.Body.String()
		if strings.Count(got, token) != test.tokens || strings.Count(got, `"delta":{"content"`) != test.events ||
			!strings.Contains(got, fmt.Sprintf(`"completion_tokens":%d`, test.tokens)) {
			t.Errorf("%s: got %s", test.body, got)
		}
	}
	w := httptest.NewRecorder()
	ScriptedModel{}.ServeHTTP(w, httptest.NewRequest("GET", "/v1/models", nil))
	if !strings.Contains(w.Body.String(), `"id":"scripted"`) {
		t.Errorf("the list of models is %s", w.Body)
	}
}

func TestScriptedModel_Interval_PauseBetweenTokens(t *testing.T) {
	begun := time.Now()
	w := httptest.NewRecorder()
	body := `{"messages":[{"role":"user","content":"say 4 every 10ms"}],"stream":true}`
	ScriptedModel{}.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body)))
	if took := time.Since(begun); took < 30*time.Millisecond {
		t.Errorf("four tokens took %v, want three intervals of 10 ms", took)
	}
}

func TestReadEvents_WholeResponseRead_CutOneIsError(t *testing.T) {
	read := func(body string) (text string, tokens int, err error) {
		tokens, err = readEvents(strings.NewReader(body), func(delta []byte) { text += string(delta) + "|" })
		return text, tokens, err
	}
	text, tokens, err := read(deltaEvent + `data: {"choices":[{"delta":{"content":"a \"b\" \\"}}]}` + "\n\n" + finishEvent + fmt.Sprintf(usageEvent, 10, 2, 12))
	if text != `word |a \"b\" \\|` || tokens != 2 || err != nil {
		t.Errorf("got %q, %d tokens, error %v", text, tokens, err)
	}
	if _, _, err := read(deltaEvent); !errors.Is(err, io.EOF) {
		t.Errorf("a response that was cut: got the error %v", err)
	}
}

func TestDeltaLength_EscapedText_LengthWhenDecoded(t *testing.T) {
	for frame, want := range map[string]int{
		`{"type":"message.delta","sessionId":"s","offset":3,"delta":"word ","cursor":"x"}`: 5,
		`{"type":"message.delta","delta":"wörd"}`:                                          5,
		`{"type":"message.delta","delta":"a\n\"b\"","cursor":"x"}`:                         5,
		`{"type":"message.delta"}`:                                                         0,
	} {
		if got := deltaLength([]byte(frame)); got != want {
			t.Errorf("%s: length %d, want %d", frame, got, want)
		}
	}
}

func TestParseEnding_TextMissing_Error(t *testing.T) {
	frame := []byte(`{"type":"message.completed","message":{"status":"completed","content":"abc","usage":{"completion":2}}}`)
	if end, err := parseEnding(frame, 3); err != nil || end != (ending{"completed", 2}) {
		t.Errorf("the whole text: %+v, error %v", end, err)
	}
	if _, err := parseEnding(frame, 2); !errors.Is(err, errText) {
		t.Errorf("two of three bytes: got the error %v", err)
	}
}

func TestListener_OwnPort_FindsThisProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("this system has no /proc")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if pid := listener("http://" + l.Addr().String()); pid != os.Getpid() {
		t.Errorf("the port belongs to process %d, want %d", pid, os.Getpid())
	}
	for _, address := range []string{"http://192.0.2.1:8420", "http://127.0.0.1", "nonsense"} {
		if pid := listener(address); pid != 0 {
			t.Errorf("%s belongs to process %d, want none", address, pid)
		}
	}
	p := &process{pid: os.Getpid()}
	before, err := p.read()
	for begun := time.Now(); time.Since(begun) < 20*time.Millisecond; { // uses the CPU
	}
	after, _ := p.read()
	if err != nil || before.resident == 0 || after.cpu <= before.cpu || after.cpu < time.Millisecond {
		t.Errorf("figures of this process: %+v, then %+v, error %v", before, after, err)
	}
}

func TestTransactions_BoltFile_CountsCommits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	before := transactions(path)
	for range 3 {
		if err := db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucketIfNotExists([]byte("b")); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if n := transactions(path) - before; n != 3 {
		t.Errorf("counted %d transactions, want 3", n)
	}
	if found := (&process{pid: os.Getpid()}).findBolt(); found != path {
		t.Errorf("found the store %q, want %q", found, path)
	}
	if n := transactions(os.DevNull) + transactions(filepath.Join(t.TempDir(), "missing")); n != 0 {
		t.Errorf("counted %d transactions in no file", n)
	}
}

// startInfo starts a server that answers like Redis to AUTH and INFO.
func startInfo(t *testing.T, info string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			request := make([]byte, 200)
			n, _ := c.Read(request)
			switch text := string(request[:n]); {
			case strings.HasPrefix(text, "AUTH reader wrong"):
				fmt.Fprint(c, "-WRONGPASS\r\n")
			case strings.HasPrefix(text, "AUTH reader secret\r\nINFO all"):
				fmt.Fprint(c, "+OK\r\n")
				fallthrough
			default:
				fmt.Fprintf(c, "$%d\r\n%s\r\n", len(info), info)
			}
			c.Close()
		}
	}()
	return l.Addr().String()
}

func TestReadRedis_Info_CPUAndCommands(t *testing.T) {
	address := startInfo(t, "# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:2.25\r\nused_memory_rss:4096\r\n"+
		"cmdstat_evalsha:calls=7,usec=900,usec_per_call=1.00\r\ncmdstat_get:calls=3,usec=5\r\n")
	for _, at := range []string{address, "redis://reader:secret@" + address} {
		u, err := readRedis(t.Context(), at)
		if err != nil || u.cpu != 3750*time.Millisecond || u.resident != 4096 || u.calls["evalsha"] != 7 || u.calls["get"] != 3 || u.inside != 900*time.Microsecond {
			t.Errorf("%s: %+v, error %v", at, u, err)
		}
	}
	for _, at := range []string{"redis://reader:wrong@" + address, "rediss://reader:wrong@" + address, "127.0.0.1:1"} {
		if _, err := readRedis(t.Context(), at); err == nil || !strings.HasPrefix(err.Error(), "--redis: ") || strings.Contains(err.Error(), "wrong") {
			t.Errorf("%s: got the error %v, want one without the password", at, err)
		}
	}
}

func TestPlot_TwoSeries_WellFormed(t *testing.T) {
	line := func(costs ...float64) (points []Point) {
		for i, c := range costs {
			points = append(points, Point{Size: 100 << i, Cost: c})
		}
		return points
	}
	image := string(Plot("CPU of <a turn>", "sessions", "µs", []Series{{"embedded", line(300, 310, 290)}, {"on Redis", line(500, 700, 900)}}))
	for d := xml.NewDecoder(strings.NewReader(image)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, image)
		}
	}
	for _, want := range []string{"CPU of &lt;a turn&gt;", ">embedded<", ">on Redis<", ">100<", ">400<", "embedded: 200, 310 µs", `points="70.0,`} {
		if !strings.Contains(image, want) {
			t.Errorf("the image has no %q", want)
		}
	}
	if strings.Contains(image, "NaN") || strings.Contains(image, "style=") {
		t.Errorf("the image has NaN or an inline style, which the page's policy forbids: %s", image)
	}
	if one := string(Plot("t", "x", "y", []Series{{"a", line(0)}})); strings.Contains(one, "NaN") || strings.Contains(one, "Inf") {
		t.Errorf("one point without a cost: %s", one)
	}
}

func TestGrow_UnknownDimension_Error(t *testing.T) {
	if _, err := Grow(t.Context(), startPipe(t), "moons", 1, 1); err == nil {
		t.Error("got no error")
	}
	g, err := Grow(t.Context(), startPipe(t), "sessions", 4, 2)
	if err != nil || g.Err() != nil || len(g.Points) != 3 || g.Points[2].Size != 16 || g.Points[0].Cost <= 0 {
		t.Errorf("sessions of a pipe: %+v, error %v", g, err)
	}
}

// Between the samples, 10 turns of 5 tokens ended, and one turn was still live: its 20 bytes of text are tokens, too.
func TestReport_TwoSamples_ExactFigures(t *testing.T) {
	r := &run{client: &client{}, server: &process{pid: 7, bolt: "file"}, sessions: &sessionPool{}}
	r.first, r.whole = newHistogram(), newHistogram()
	r.Target.Redis = "redis"
	r.endedBytes.Store(200)
	r.endedTokens.Store(50)
	begun := time.Unix(1_000, 0)
	before := sample{
		counts: counts{turns: 2, frames: 5, bytes: 40}, at: begun, own: time.Second, mallocs: 1_000, hasHeap: true,
		server: usage{cpu: time.Second, written: 100, writeCalls: 10, transactions: 4},
		redis:  redisUsage{cpu: time.Second, inside: time.Second, calls: map[string]int64{"evalsha": 7, "info": 1}},
	}
	after := sample{
		counts: counts{turns: 12, frames: 65, bytes: 260}, at: begun.Add(4 * time.Second), own: 2 * time.Second, mallocs: 5_000, hasHeap: true,
		server: usage{cpu: 1_011 * time.Millisecond, written: 1_100, writeCalls: 50, transactions: 9},
		redis:  redisUsage{cpu: 1_002 * time.Millisecond, inside: 1_001 * time.Millisecond, calls: map[string]int64{"evalsha": 37, "info": 2}, resident: 9},
	}
	got := r.report("requests", before, after, 1<<20, []int64{5 << 20, 2 << 20, 3 << 20}).with(2, Reply{}, "stream")
	s, d := got.Server, got.Redis
	for name, figure := range map[string][2]float64{
		"turns": {float64(got.Turns), 10}, "seconds": {got.Seconds, 4}, "frames": {float64(got.Frames), 60},
		"tokens": {got.Tokens, 55}, "CPU of the client": {got.ClientCPU, 0.25}, // 220 bytes, 4 bytes a token
		"CPU a turn, µs": {s.CPUPerTurn, 1_100}, "CPU a token, µs": {s.CPUPerToken, 200}, "allocations a turn": {*s.AllocsPerTurn, 400},
		"fdatasync a turn": {*s.SyncsPerTurn, 1}, "bytes written a turn": {s.WrittenPerTurn, 100}, "write calls a turn": {s.WriteCallsPerTurn, 4},
		"resident": {float64(s.Resident), 3 << 20}, "resident for each stream": {s.ResidentEach, 1 << 20},
		"CPU of Redis a turn, µs": {d.CPUPerTurn, 200}, "scripts a turn, µs": {d.ScriptsPerTurn, 100}, "evalsha a turn": {d.CallsPerTurn["evalsha"], 3},
	} {
		if math.Abs(figure[0]-figure[1]) > 1e-6*figure[1] {
			t.Errorf("%s: %v, want %v", name, figure[0], figure[1])
		}
	}
	if _, ok := d.CallsPerTurn["info"]; ok {
		t.Error("the load generator's own INFO counts as a command of the server")
	}
}
