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

// pipes starts a server with that handler, and returns a model of the server. Their connections are pipes in memory, which
// work in a synctest bubble.
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

func TestRetry_ModelStillLoading_ThirdRequestSucceeds(t *testing.T) {
	file, err := os.ReadFile("testdata/llama-server/00-while-loading.txt")
	if err != nil {
		t.Fatal(err)
	}
	body, ok := strings.CutPrefix(string(file), "503 ")
	if !ok {
		t.Fatal("unexpected capture")
	}
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
			if requests++; requests < 3 {
				w.WriteHeader(503)
				sendText(w, body)
				return
			}
			sendText(w, someText, plainEnd, lastUse, "data: [DONE]\n\n")
		})
		outcome, text := pumped(model)
		wantReply(t, expected{text: "Hello", finish: "stop", usage: &stream.Usage{Prompt: 7, Completion: 2}}, outcome, text)
		if requests != 3 {
			t.Errorf("got %d requests, want 3", requests)
		}
	})
}

// TestRetry_EachFailure_RetriedOnlyIfUseful counts the requests after each kind of failure, and measures their total delay
// in fake time.
func TestRetry_EachFailure_RetriedOnlyIfUseful(t *testing.T) {
	// backoff is the shortest and the longest total delay of three retries.
	backoff := [2]time.Duration{(500 + 1000 + 2000) * 3 / 4 * time.Millisecond, (500 + 1000 + 2000) * 5 / 4 * time.Millisecond}
	at := time.Date(2000, 1, 1, 0, 0, 12, 0, time.UTC).Format(http.TimeFormat) // a synctest bubble begins at midnight
	for name, test := range map[string]struct {
		status     int
		retryAfter string
		body       string
		requests   int
		least      time.Duration // shortest allowed duration of Generate
		most       time.Duration // longest allowed duration of Generate
		message    string
	}{
		"429":                           {status: 429, requests: 4, least: backoff[0], most: backoff[1], message: messageBusy},
		"500":                           {status: 500, requests: 4, least: backoff[0], most: backoff[1], message: messageDown},
		"502":                           {status: 502, requests: 4, least: backoff[0], most: backoff[1], message: messageDown},
		"503":                           {status: 503, requests: 4, least: backoff[0], most: backoff[1], message: messageDown},
		"529":                           {status: 529, requests: 4, least: backoff[0], most: backoff[1], message: messageDown},
		"408":                           {status: 408, requests: 4, least: backoff[0], most: backoff[1], message: messageDown},
		"400":                           {status: 400, requests: 1, message: messageRefused},
		"401":                           {status: 401, requests: 1, message: messageCredentials},
		"403":                           {status: 403, requests: 1, message: messageCredentials},
		"404":                           {status: 404, requests: 1, message: messageUnknown},
		"413":                           {status: 413, requests: 1, message: messageRefused},
		"422":                           {status: 422, requests: 1, message: messageRefused},
		"quota used up":                 {status: 429, body: `{"error":{"message":"Pay","type":"x","code":"insufficient_quota"}}`, requests: 1, message: messageQuota},
		"Retry-After 10 s":              {status: 429, retryAfter: "10", requests: 4, least: 30 * time.Second, most: 50 * time.Second, message: messageBusy},
		"Retry-After is a date":         {status: 503, retryAfter: at, requests: 4, least: 12 * time.Second, most: 24 * time.Second, message: messageDown},
		"Retry-After 0":                 {status: 429, retryAfter: "0", requests: 4, least: backoff[0], most: backoff[1], message: messageBusy},
		"Retry-After is invalid":        {status: 429, retryAfter: "soon", requests: 4, least: backoff[0], most: backoff[1], message: messageBusy},
		"Retry-After 1 h":               {status: 429, retryAfter: "3600", requests: 1, message: messageBusy},
		"broken connection before text": {status: 200, body: ": hm\n\n", requests: 4, least: backoff[0], most: backoff[1], message: messageBrokeOff},
		"broken connection after text":  {status: 200, body: someText, requests: 1, message: messageBrokeOff},
		"empty response":                {status: 200, requests: 1, message: messageNoAnswer},
		"error with status 200":         {status: 200, body: `data: {"error":{"code":503}}` + "\n", requests: 1, message: messageFailed},
	} {
		t.Run(fmt.Sprintf("%s, requests: %d", name, test.requests), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests := 0
				model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
					requests++
					if test.retryAfter != "" {
						w.Header().Set("Retry-After", test.retryAfter)
					}
					w.WriteHeader(test.status)
					sendText(w, test.body)
					if strings.HasPrefix(name, "broken connection") {
						panic(http.ErrAbortHandler)
					}
				})
				began := time.Now()
				outcome, text := pumped(model)
				took := time.Since(began)
				wantFailed(t, outcome, test.message)
				if requests != test.requests || took < test.least || took > test.most+time.Millisecond {
					t.Errorf("got %d requests in %v, want %d in %v to %v", requests, took, test.requests, test.least, test.most)
				}
				if test.body == someText && text != "Hello" {
					t.Errorf("the text is %q, want Hello", text)
				}
			})
		})
	}
}

func TestGenerate_TextHeldBackThenFailure_Kept(t *testing.T) {
	outcome, text := pumped(modelWithResponse(t, chunked(delta("content", "<thi"), true))) // no finish reason, and no retry
	if wantFailed(t, outcome, messageBrokeOff); text != "<thi" {
		t.Errorf("the text is %q, want <thi", text)
	}
}

// Text that could begin a block <think>, and half a character, are held back when the connection breaks.
func TestRetry_TextHeldBack_NotRepeated(t *testing.T) {
	for held, whole := range map[string]string{
		delta("content", "\n<"): "\n<b>Hello",
		strings.Replace(delta("content", ""), `""`, `"\ud83d"`, 1): "Hello",
	} {
		synctest.Test(t, func(t *testing.T) {
			requests := 0
			model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
				if requests++; requests < 3 {
					sendText(w, held)
					panic(http.ErrAbortHandler)
				}
				sendText(w, delta("content", whole), plainEnd, "data: [DONE]\n\n")
			})
			if outcome, text := pumped(model); outcome.State != stream.Completed || text != whole || requests != 3 {
				t.Errorf("after %d requests, the reply is %s, %v, %q; want %q after 3", requests, outcome.State, outcome.Err, text, whole)
			}
		})
	}
}

func TestRetry_ConnectionFails_FourAttempts(t *testing.T) {
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
					t.Errorf("after %d times %v: the reply is %s, %v after %d attempts; want %s after 4",
						refusals, broken, outcome.State, outcome.Err, tried, state)
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
		t.Errorf("got %d connections, %v; want 1, %v", n, outcome.Err, errCertificate)
	}
}

func TestRetry_SameFailure_DelaysDiffer(t *testing.T) {
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

func TestRetry_CancelledDuringDelay_ReturnsAtOnce(t *testing.T) {
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
			t.Errorf("the reply is %s after %v, want cancelled after 3 s", outcome.State, took)
		}
	})
}

func TestGenerate_ModelSilentFor60s_FailsWithTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{}, 2)
		model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
			sendText(w, someText, ": still here\n\n")
			<-r.Context().Done()
			gone <- struct{}{}
		})
		began := time.Now()
		outcome := stream.Pump(context.Background(), model, hello, stream.NewReply("msg_1"), stream.Timeouts{FirstByte: 120 * time.Second, Stall: 60 * time.Second})
		if took := time.Since(began); outcome.State != stream.Failed || outcome.Err.Code != stream.CodeProviderTimeout || took != 60*time.Second {
			t.Errorf("the reply is %s, %v after %v; want failed after 60 s", outcome.State, outcome.Err, took)
		}
		<-gone
	})
}

func TestGenerate_HeadersAfter100s_Completes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Second) // in fake time
			sendText(w, someText, plainEnd)
		})
		outcome := stream.Pump(context.Background(), model, hello, stream.NewReply("msg_1"), stream.Timeouts{FirstByte: 120 * time.Second, Stall: 60 * time.Second})
		if outcome.State != stream.Completed {
			t.Errorf("the reply is %s, %v; want completed", outcome.State, outcome.Err)
		}
	})
}

func TestGenerate_ServerKeepsResponseOpen_Completes(t *testing.T) {
	for name, test := range map[string]struct {
		parts []string
		took  time.Duration
	}{
		"3 s after the finish reason": {[]string{someText, plainEnd}, usageWait},
		"3 s after usage":             {[]string{someText, plainEnd, lastUse}, usageWait},
		"50 ms after [DONE]":          {[]string{someText, plainEnd, lastUse, "data: [DONE]\n\n"}, endWait},
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
					t.Errorf("the reply is %s, %v, %q after %v; want completed after %v",
						outcome.State, outcome.Err, text, took, test.took)
				}
				<-gone
			})
		})
	}
}

func TestGenerate_CancelledAfterFinishReason_Completes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := pipes(t, func(w http.ResponseWriter, r *http.Request) {
			sendText(w, someText, plainEnd, lastUse)
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(stream.ErrCancelled) })
		outcome := stream.Pump(ctx, model, hello, stream.NewReply("msg_1"), longTimeouts)
		if outcome.State != stream.Completed || outcome.Result.Usage == nil {
			t.Errorf("the reply is %s, %+v; want completed, with usage", outcome.State, outcome.Result)
		}
	})
}

func TestGenerate_Cancelled_ClosesRequest(t *testing.T) {
	for name, sent := range map[string]string{"before the headers": "", "after the first text": someText} {
		t.Run(name, func(t *testing.T) {
			asked, gone := make(chan struct{}), make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if sent != "" {
					sendText(w, sent)
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
				t.Errorf("the reply is %s, %v; want cancelled", outcome.State, outcome.Err)
			}
			select {
			case <-gone:
			case <-time.After(time.Minute): // only if the test fails
				t.Error("Generate did not close the request to the provider")
			}
		})
	}
}

func TestGenerate_CancelOneOfTwoOnHTTP2_OtherGoesOn(t *testing.T) {
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
		t.Errorf("the requests used the connections %q, want one HTTP/2 connection", seen)
	}
	for n, cancel := range cancels {
		cancel(stream.ErrCancelled)
		if outcome := <-outcomes; outcome.State != stream.Cancelled {
			t.Errorf("the reply is %s, %v; want cancelled", outcome.State, outcome.Err)
		}
		<-gone
		if n == 0 && (len(gone) > 0 || len(outcomes) > 0) {
			t.Error("the cancel of the first reply also ended the second reply")
		}
	}
}

func TestGenerate_RepliesInARow_ShareOneConnection(t *testing.T) {
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
		t.Errorf("the model used %d connections, want 1", n)
	}
}

func TestGenerate_IdleConnectionClosed_Completes(t *testing.T) {
	c := load(t, "ollama/04-stream-usage.txt")
	server := serveRaw(t, func(_ int, w net.Conn, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for _, piece := range c.pieces() {
			_, _ = w.Write(piece)
		}
		// Wait for the next request, then return, which closes the connection without a response. The same happens if a
		// server closes an idle connection at the moment of a request.
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
