package openai

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"parley/stream"
)

// pipes serves handler over pipes in memory, which work in a synctest bubble. It returns a model that uses them.
func pipes(t *testing.T, handler http.HandlerFunc) *Model {
	conns := make(chan net.Conn)
	closed := make(chan struct{})
	server := &http.Server{Handler: handler}
	go server.Serve(&pipeListener{conns: conns, closed: closed})
	transport := newTransport()
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case conns <- theirs:
			return ours, nil
		case <-closed:
			return nil, errors.New("closed")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	model := newModel(Options{BaseURL: "http://model.test/v1", Name: "stories"}, transport)
	t.Cleanup(func() {
		model.Close()
		close(closed)
		server.Close()
	})
	return model
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func sendText(w http.ResponseWriter, parts ...string) {
	for _, part := range parts {
		_, _ = io.WriteString(w, part)
		_ = http.NewResponseController(w).Flush()
	}
}

func TestRetry_ModelLoading_Completes(t *testing.T) {
	file, err := os.ReadFile("testdata/llama-server/00-while-loading.txt")
	if err != nil {
		t.Fatal(err)
	}
	body, ok := strings.CutPrefix(string(file), "503 ")
	if !ok {
		t.Fatal("unexpected capture")
	}
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
			if asked++; asked < 3 {
				w.WriteHeader(503)
				sendText(w, body)
				return
			}
			sendText(w, someText, plainEnd, lastUse, "data: [DONE]\n\n")
		})
		outcome, text := pumped(model)
		wantReply(t, expected{text: "Hello", finish: "stop", usage: &stream.Usage{Prompt: 7, Completion: 2}}, outcome, text)
		if asked != 3 {
			t.Errorf("%d requests, want 3", asked)
		}
	})
}

// The test counts the requests for each kind of response, and measures their delays in fake time.
func TestRetry_EachFailure_AttemptsAndDelays(t *testing.T) {
	backoff := [2]time.Duration{(500 + 1000 + 2000) * 3 / 4 * time.Millisecond, (500 + 1000 + 2000) * 5 / 4 * time.Millisecond}
	at := time.Date(2000, 1, 1, 0, 0, 12, 0, time.UTC).Format(http.TimeFormat) // a synctest bubble begins at midnight
	for name, test := range map[string]struct {
		status     int
		retryAfter string
		body       string
		asked      int
		least      time.Duration
		most       time.Duration
		message    string
	}{
		"429":                  {status: 429, asked: 4, least: backoff[0], most: backoff[1], message: messageBusy},
		"500":                  {status: 500, asked: 4, least: backoff[0], most: backoff[1], message: messageDown},
		"502":                  {status: 502, asked: 4, least: backoff[0], most: backoff[1], message: messageDown},
		"503":                  {status: 503, asked: 4, least: backoff[0], most: backoff[1], message: messageDown},
		"529":                  {status: 529, asked: 4, least: backoff[0], most: backoff[1], message: messageDown},
		"408":                  {status: 408, asked: 4, least: backoff[0], most: backoff[1], message: messageDown},
		"400":                  {status: 400, asked: 1, message: messageRefused},
		"401":                  {status: 401, asked: 1, message: messageCredentials},
		"403":                  {status: 403, asked: 1, message: messageCredentials},
		"404":                  {status: 404, asked: 1, message: messageUnknown},
		"413":                  {status: 413, asked: 1, message: messageRefused},
		"422":                  {status: 422, asked: 1, message: messageRefused},
		"a used up quota":      {status: 429, body: `{"error":{"message":"Pay","type":"x","code":"insufficient_quota"}}`, asked: 1, message: messageQuota},
		"Retry-After":          {status: 429, retryAfter: "10", asked: 4, least: 30 * time.Second, most: 50 * time.Second, message: messageBusy},
		"Retry-After, a date":  {status: 503, retryAfter: at, asked: 4, least: 12 * time.Second, most: 24 * time.Second, message: messageDown},
		"Retry-After, 0":       {status: 429, retryAfter: "0", asked: 4, least: backoff[0], most: backoff[1], message: messageBusy},
		"Retry-After, a word":  {status: 429, retryAfter: "soon", asked: 4, least: backoff[0], most: backoff[1], message: messageBusy},
		"Retry-After, an hour": {status: 429, retryAfter: "3600", asked: 1, message: messageBusy},
		"a cut before text":    {status: 200, body: ": hm\n\n", asked: 4, least: backoff[0], most: backoff[1], message: messageBrokeOff},
		"a cut after text":     {status: 200, body: someText, asked: 1, message: messageBrokeOff},
		"a clean early end":    {status: 200, asked: 1, message: messageNoAnswer},
		"an error in a 200":    {status: 200, body: `data: {"error":{"code":503}}` + "\n", asked: 1, message: messageFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
					asked++
					if test.retryAfter != "" {
						w.Header().Set("Retry-After", test.retryAfter)
					}
					w.WriteHeader(test.status)
					sendText(w, test.body)
					if strings.HasPrefix(name, "a cut") {
						panic(http.ErrAbortHandler)
					}
				})
				began := time.Now()
				outcome, text := pumped(model)
				took := time.Since(began)
				wantFailed(t, outcome, test.message)
				if asked != test.asked || took < test.least || took > test.most+time.Millisecond {
					t.Errorf("%d requests in %v, want %d in %v to %v", asked, took, test.asked, test.least, test.most)
				}
				if test.body == someText && text != "Hello" {
					t.Errorf("the text is %q", text)
				}
			})
		})
	}
}

func TestRetry_ConnectionRefused_FourAttempts(t *testing.T) {
	for _, broken := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, &net.DNSError{Err: "no such host", Name: "model.test", IsNotFound: true}} {
		for refusals, state := range map[int]stream.State{3: stream.Completed, 4: stream.Failed} {
			synctest.Test(t, func(t *testing.T) {
				model := pipes(t, func(w http.ResponseWriter, r *http.Request) { sendText(w, someText, plainEnd) })
				transport := model.http.Transport.(*http.Transport)
				dial, tried := transport.DialContext, 0
				transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
					if tried++; tried <= refusals {
						return nil, &net.OpError{Op: "dial", Net: network, Err: broken}
					}
					return dial(ctx, network, address)
				}
				if outcome, _ := pumped(model); outcome.State != state || tried != 4 {
					t.Errorf("%v, %d times: %s, %v after %d attempts", broken, refusals, outcome.State, outcome.Err, tried)
				}
			})
		}
	}
}

func TestRetry_UntrustedCertificate_NoRetry(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	var conns atomic.Int32
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	outcome, _ := pumped(open(t, server.URL))
	wantFailed(t, outcome, messageUnreachable)
	if n := conns.Load(); n != 1 || !errors.Is(outcome.Err, errCertificate) {
		t.Errorf("%d connections, %v", n, outcome.Err)
	}
}

func TestRetry_Delays_HaveJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		for _, header := range []string{"", "5"} {
			for range 3 {
				var times []time.Time
				model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
					times = append(times, time.Now())
					w.Header().Set("Retry-After", header)
					w.WriteHeader(429)
				})
				_, _ = pumped(model)
				seen[times[1].Sub(times[0])] = true
			}
		}
		if len(seen) != 6 {
			t.Errorf("the delays are not all different: %v", seen)
		}
	})
}

func TestRetry_Cancelled_EndsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "20")
			w.WriteHeader(429)
		})
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(3*time.Second, func() { cancel(stream.ErrCancelled) })
		began := time.Now()
		outcome := stream.Pump(ctx, model, hello, stream.NewReply("msg_1"), longTimeouts)
		if took := time.Since(began); outcome.State != stream.Cancelled || took != 3*time.Second {
			t.Errorf("%s after %v", outcome.State, took)
		}
	})
}

func TestGenerate_SilentModel_ProviderTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{}, 2)
		model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" { // true for every request: the model has no key
				sendText(w, someText, ": still here\n\n")
			}
			<-r.Context().Done()
			gone <- struct{}{}
		})
		began := time.Now()
		outcome := stream.Pump(context.Background(), model, hello, stream.NewReply("msg_1"), stream.Timeouts{FirstByte: 120 * time.Second, Stall: 60 * time.Second})
		if took := time.Since(began); outcome.State != stream.Failed || outcome.Err.Code != stream.CodeProviderTimeout || took != 60*time.Second {
			t.Errorf("%s, %v after %v", outcome.State, outcome.Err, took)
		}
		<-gone
	})
}

func TestGenerate_LateHeaders_Completes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Second) // in fake time
			sendText(w, someText, plainEnd)
		})
		outcome := stream.Pump(context.Background(), model, hello, stream.NewReply("msg_1"), stream.Timeouts{FirstByte: 120 * time.Second, Stall: 60 * time.Second})
		if outcome.State != stream.Completed {
			t.Errorf("%s, %v", outcome.State, outcome.Err)
		}
	})
}

func TestGenerate_CompleteReply_BoundedWait(t *testing.T) {
	for name, test := range map[string]struct {
		parts []string
		took  time.Duration
	}{
		"after the finish reason": {[]string{someText, plainEnd}, usageWait},
		"after usage":             {[]string{someText, plainEnd, lastUse}, usageWait},
		"after [DONE]":            {[]string{someText, plainEnd, lastUse, "data: [DONE]\n\n"}, endWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := make(chan struct{})
				model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
					sendText(w, test.parts...)
					<-r.Context().Done()
					close(gone)
				})
				began := time.Now()
				outcome, text := pumped(model)
				if took := time.Since(began); outcome.State != stream.Completed || text != "Hello" || took != test.took {
					t.Errorf("%s, %v, %q after %v", outcome.State, outcome.Err, text, took)
				}
				<-gone
			})
		})
	}
}

func TestGenerate_CancelledWhenComplete_Completed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
			sendText(w, someText, plainEnd, lastUse)
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(stream.ErrCancelled) })
		outcome := stream.Pump(ctx, model, hello, stream.NewReply("msg_1"), longTimeouts)
		if outcome.State != stream.Completed || outcome.Result.Usage == nil {
			t.Errorf("%s, %+v", outcome.State, outcome.Result)
		}
	})
}

func TestGenerate_Cancelled_ClosesRequest(t *testing.T) {
	for _, words := range []string{"", someText} { // cancelled before the headers, and in mid-reply
		t.Run(fmt.Sprint(len(words)), func(t *testing.T) {
			asked, gone := make(chan struct{}), make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if words != "" {
					sendText(w, words)
				}
				close(asked)
				<-r.Context().Done()
				close(gone)
			}))
			defer server.Close()
			ctx, cancel := context.WithCancelCause(context.Background())
			ended := make(chan stream.Outcome)
			go func() { ended <- stream.Pump(ctx, open(t, server.URL), hello, stream.NewReply("msg_1"), longTimeouts) }()
			<-asked
			cancel(stream.ErrCancelled)
			if outcome := <-ended; outcome.State != stream.Cancelled {
				t.Errorf("%s, %v", outcome.State, outcome.Err)
			}
			select {
			case <-gone:
			case <-time.After(time.Minute): // reached only if the request hangs
				t.Error("the request to the provider was not closed")
			}
		})
	}
}

func TestGenerate_HTTP2_AbortEndsOneStream(t *testing.T) {
	asked, gone := make(chan string, 2), make(chan string, 2)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sendText(w, someText)
		asked <- r.Proto + " " + r.RemoteAddr
		<-r.Context().Done()
		gone <- r.RemoteAddr
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	transport := newTransport()
	transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	model := newModel(Options{BaseURL: server.URL, Name: "stories"}, transport)
	defer model.Close()
	var cancels []context.CancelCauseFunc
	outcomes := make(chan stream.Outcome, 2)
	var seen []string
	for range 2 {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancels = append(cancels, cancel)
		go func() { outcomes <- stream.Pump(ctx, model, hello, stream.NewReply("msg_1"), longTimeouts) }()
		seen = append(seen, <-asked)
	}
	if !strings.HasPrefix(seen[0], "HTTP/2.0 ") || seen[0] != seen[1] {
		t.Errorf("the requests came by %q, want one HTTP/2 connection", seen)
	}
	for n, cancel := range cancels {
		cancel(stream.ErrCancelled)
		if outcome := <-outcomes; outcome.State != stream.Cancelled {
			t.Errorf("%s, %v", outcome.State, outcome.Err)
		}
		<-gone
		if n == 0 && (len(gone) > 0 || len(outcomes) > 0) {
			t.Error("the other reply ended too")
		}
	}
}

func TestGenerate_ManyReplies_OneConnection(t *testing.T) {
	var conns atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sendText(w, someText, plainEnd, lastUse, "data: [DONE]\n\n")
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	model := open(t, server.URL)
	for range 20 {
		if outcome, _ := pumped(model); outcome.State != stream.Completed {
			t.Fatal(outcome)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestGenerate_IdleConnectionClosed_Completes(t *testing.T) {
	c := load(t, "ollama/04-stream-usage.txt")
	server := serveRaw(t, func(_ int, w net.Conn, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for _, piece := range c.pieces() {
			_, _ = w.Write(piece)
		}
		// The next request arrives while the connection is being closed, and gets no response.
		_, _ = http.ReadRequest(bufio.NewReader(w))
	})
	model := withoutRetries(open(t, server.url()))
	for range 10 {
		if outcome, _ := pumped(model); outcome.State != stream.Completed {
			t.Fatal(outcome.State, outcome.Err)
		}
	}
	model.Close()
}
