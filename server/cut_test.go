package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"parley/stream/openai"
)

// pacedModel is an OpenAI-compatible HTTP server that sends a reply in pieces. The test sets the pieces with the method say. The
// server sends a piece only after the test has released it.
type pacedModel struct {
	*httptest.Server
	mu       sync.Mutex
	changed  *sync.Cond
	pieces   [][]byte // pieces of the response's body; the server writes each in one call
	released int      // number of pieces that may be written
	closed   bool
}

func newPacedModel(t *testing.T) *pacedModel {
	m := &pacedModel{}
	m.changed = sync.NewCond(&m.mu)
	m.Server = httptest.NewServer(http.HandlerFunc(m.answer))
	t.Cleanup(func() {
		m.mu.Lock()
		m.closed = true
		m.changed.Broadcast()
		m.mu.Unlock()
		m.CloseClientConnections()
		m.Close()
	})
	return m
}

func (m *pacedModel) answer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	for i := 0; ; i++ {
		m.mu.Lock()
		for i >= m.released && !m.closed {
			m.changed.Wait()
		}
		if m.closed || i >= len(m.pieces) {
			m.mu.Unlock()
			return
		}
		piece := m.pieces[i]
		m.mu.Unlock()
		if _, err := w.Write(piece); err != nil {
			return
		}
		_ = flush.Flush()
	}
}

// say sets the pieces of the next reply. No piece is released yet.
func (m *pacedModel) say(pieces [][]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pieces, m.released = pieces, 0
}

// release allows the model to send n more pieces.
func (m *pacedModel) release(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.released += n
	m.changed.Broadcast()
}

// randomReply returns the text of a reply with this number of deltas, and the pieces in which the model sends the text. The
// characters have one to four bytes, and some pieces end inside a character. After n pieces, viewers can see visible[n] bytes.
func randomReply(random *rand.Rand, deltas int) (text string, pieces [][]byte, visible []int) {
	visible = []int{0}
	alphabet := []string{"a", "word ", "ß", "é", "日本", "🙂", "\n", "\"q\"", "\\", "\u2028", "<b>", "👩‍👩‍👧", "\t"}
	var all strings.Builder
	for range deltas {
		delta := ""
		for range 1 + random.IntN(3) {
			delta += alphabet[random.IntN(len(alphabet))]
		}
		all.WriteString(delta)
		quoted, _ := json.Marshal(delta)
		event := fmt.Appendf(nil, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%s},\"finish_reason\":null}]}\n\n", quoted)
		cut := -1
		for i, b := range event {
			if b >= 0xC0 && random.IntN(4) == 0 {
				cut = i + 1 // after the first byte of a character
				break
			}
		}
		if cut > 0 {
			pieces = append(pieces, event[:cut], event[cut:])
			visible = append(visible, visible[len(visible)-1])
		} else {
			pieces = append(pieces, event)
		}
		visible = append(visible, all.Len())
	}
	pieces = append(pieces, []byte("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"))
	return all.String(), pieces, append(visible, all.Len())
}

// cuttingProxy is a proxy that cuts a connection after it has sent a number of bytes to the client. The cut may be anywhere in a
// frame.
type cuttingProxy struct {
	net.Listener
	to    string
	mu    sync.Mutex
	after int // number of bytes after which new connections are cut; 0 means never
	done  sync.WaitGroup
}

func newCuttingProxy(t *testing.T, to string) *cuttingProxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cuttingProxy{Listener: listener, to: strings.TrimPrefix(to, "http://")}
	c.done.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			after := c.after
			c.mu.Unlock()
			c.done.Go(func() { c.relay(client, after) })
		}
	})
	t.Cleanup(func() { listener.Close(); c.done.Wait() })
	return c
}

func (c *cuttingProxy) set(after int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = after
}

func (c *cuttingProxy) relay(client net.Conn, after int) {
	defer client.Close()
	server, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer server.Close()
		buffer := make([]byte, 4096)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	reader := bufio.NewReader(server)
	for seen := 0; after == 0 || seen < after; seen++ {
		b, err := reader.ReadByte()
		if err != nil {
			return
		}
		buffer := []byte{b}
		if rest := reader.Buffered(); rest > 0 && (after == 0 || seen+rest < after) {
			more, _ := reader.Peek(rest)
			buffer = append(buffer, more...)
			_, _ = reader.Discard(rest)
			seen += rest
		}
		if _, err := client.Write(buffer); err != nil {
			return
		}
	}
}

// viewer rebuilds one reply from frames, over any number of connections.
type viewer struct {
	text    []byte
	cursor  string
	created int
	ended   bool
}

// take checks that f is the next frame of the reply. It adds a delta to the text.
func (v *viewer) take(t *testing.T, f frame, reply string) {
	t.Helper()
	if f.Cursor != "" {
		v.cursor = f.Cursor
	}
	switch {
	case f.Type == "message.created" && f.Message.MessageID == reply:
		v.created++
		if f.Message.Status != "streaming" || f.Message.Content != "" {
			t.Fatalf("message.created has the message %+v", f.Message)
		}
	case f.Type == "message.delta":
		if f.MessageID != reply || f.Offset != len(v.text) {
			t.Fatalf("a delta of %s at %d, want %s at %d", f.MessageID, f.Offset, reply, len(v.text))
		}
		v.text = append(v.text, f.Delta...)
	case f.Type == "message.completed":
		if f.Message.Content != string(v.text) {
			t.Fatalf("the text has %d bytes in the terminal frame and %d bytes in the deltas", len(f.Message.Content), len(v.text))
		}
		v.ended = true
	default:
		t.Fatalf("unexpected frame %+v", f)
	}
}

func TestSocket_CutAnywhere_EachByteReceivedOnce(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	model := newPacedModel(t)
	p := start(t, openai.New(openai.Options{BaseURL: model.URL, Name: "paced"}))
	proxy := newCuttingProxy(t, p.url)
	session := p.session()
	cuts := map[string]int{}
	for _, deltas := range []int{1, 1, 2, 3, 5, 10, 10, 30, 100, 100, 300, 1000, 5000} {
		for _, byHistory := range []bool{false, true} {
			text, pieces, visible := randomReply(random, deltas)
			model.say(pieces)
			begun := p.begin(session, "go on")
			c := &cutTest{t: t, p: p, proxy: proxy, model: model, random: random, session: session,
				reply: begun["messageId"].(string), visible: visible, cuts: cuts, byHistory: byHistory}
			c.viewer.cursor = begun["stream"].(map[string]any)["cursor"].(string)
			for !c.viewer.ended {
				c.view()
			}
			if string(c.viewer.text) != text {
				t.Fatalf("%d deltas: rebuilt %d bytes, want %d", deltas, len(c.viewer.text), len(text))
			}
			if !byHistory && c.viewer.created != 1 {
				t.Fatalf("%d deltas: message.created arrived %d times", deltas, c.viewer.created)
			}
		}
	}
	sum := -cuts[beforeReload] // each of these cuts is counted under another kind too
	for _, kind := range cutKinds {
		if cuts[kind] == 0 {
			t.Errorf("there was no cut %s", kind)
		}
		sum += cuts[kind]
	}
	if sum < 200 {
		t.Errorf("only %d cuts", sum)
	}
	t.Logf("%d cuts: %v", sum, cuts)
}

// beforeReload is a kind of cut. After such a cut, the viewer reads the history.
const beforeReload = "followed by a reload of the history"

var cutKinds = []string{
	"between frames", "inside a frame", "before the first delta", "after the last delta", "while the model had sent half a character",
	beforeReload,
}

// cutTest views one reply over several connections. The test cuts some connections itself, and the proxy cuts others.
type cutTest struct {
	t              *testing.T
	p              *parley
	proxy          *cuttingProxy
	model          *pacedModel
	random         *rand.Rand
	session, reply string
	visible        []int // after n pieces, viewers can see visible[n] bytes of the text
	cuts           map[string]int
	byHistory      bool
	viewer         viewer
	connected      int
	released       int // number of released pieces
}

// cutConnections limits the cuts of a reply: from the connection with this number on, no connection is cut.
const cutConnections = 25

// view opens a connection and reads until the connection is cut or the reply has ended. Whenever it has read all released text,
// it releases more pieces or cuts the connection.
func (c *cutTest) view() {
	c.connected++
	if c.byHistory && c.connected > 1 {
		if c.reload(); c.viewer.ended {
			return
		}
	}
	after := 0
	if c.connected < cutConnections && c.random.IntN(2) == 0 {
		after = 500 + c.random.IntN(600+c.total()/10)
	}
	c.proxy.set(after)
	s, err := c.p.tryDial("http://"+c.proxy.Addr().String(), websocket.DialOptions{})
	if err != nil {
		return // the connection was cut during the handshake
	}
	defer func() { _ = s.conn.CloseNow() }()
	answer, err := s.subscribe(c.session, c.viewer.cursor)
	if err != nil {
		return
	}
	if answer.Type != "subscribed" || answer.Recovered == nil || !*answer.Recovered || answer.Cursor != c.viewer.cursor {
		c.t.Fatalf("subscribing after %q returned %+v", c.viewer.cursor, answer)
	}
	for !c.viewer.ended {
		if c.released < len(c.visible)-1 && len(c.viewer.text) >= c.visible[c.released] {
			if after == 0 && c.connected < cutConnections && c.random.IntN(3) == 0 {
				c.cut("between frames")
				return
			}
			c.release()
			continue
		}
		f, err := s.read()
		if err != nil {
			c.cut("inside a frame")
			return
		}
		if f.Type == "context.compressed" {
			continue // the session is long, so old messages are summarised
		}
		c.viewer.take(c.t, f, c.reply)
	}
}

func (c *cutTest) total() int { return c.visible[len(c.visible)-1] }

// release releases a random number of pieces. The number is small, so that the reply lasts for many connections.
func (c *cutTest) release() {
	n := min(1+c.random.IntN(1+len(c.visible)/cutConnections), len(c.visible)-1-c.released)
	c.released += n
	c.model.release(n)
}

// cut counts a cut of a kind. If the cut is at the start or the end of the text, or inside a character, cut uses a more precise
// kind.
func (c *cutTest) cut(kind string) {
	seen := len(c.viewer.text)
	switch {
	case seen == 0:
		kind = "before the first delta"
	case seen == c.total():
		kind = "after the last delta"
	case kind == "between frames" && c.released > 0 && c.visible[c.released] == c.visible[c.released-1]:
		kind = "while the model had sent half a character"
	}
	c.cuts[kind]++
	if c.byHistory {
		c.cuts[beforeReload]++
	}
}

// reload replaces the viewer's text and cursor by those in the history. A web page does the same after a reload.
func (c *cutTest) reload() {
	page := c.p.must("GET", "/v1/sessions/"+c.session+"/messages?limit=1", nil)
	newest := page["data"].([]any)[0].(map[string]any)
	if newest["messageId"] != c.reply {
		c.t.Fatalf("the newest message is %v", newest["messageId"])
	}
	c.viewer.text = []byte(newest["content"].(string))
	c.viewer.cursor = page["stream"].(map[string]any)["cursor"].(string)
	c.viewer.ended = newest["status"] == "completed"
}
