package models

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"parley/stream"
	"parley/stream/openai"
)

// stories is the entry of a model in a list of models.
const stories = `{"id":"stories","object":"model","meta":{"n_ctx":512}}`

func TestSet_ServerStartsLater_ReadyAndLoggedOnce(t *testing.T) {
	address := freeAddress(t)
	var log logged
	s := open(t, Options{Models: []Config{{Name: "fast", BaseURL: "http://user:secret@" + address + "/v1", Model: "stories"}}, Log: log.logger()})
	m := s.Default()
	await(t, m, Status{Unreachable, openai.ConnectionRefused})
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip("another program took the address")
	}
	f := &fakeServer{models: stories, status: http.StatusOK}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: f}}
	server.Start()
	defer server.Close()
	await(t, m, Status{State: Ready})
	if tokens, source := m.Context(); tokens != 512 || source != "listed" {
		t.Errorf("the context is %d (%s), want 512 (listed)", tokens, source)
	}
	if n := log.count("the model cannot be used"); n != 1 {
		t.Errorf("%d lines say that the model cannot be used, want 1:\n%s", n, log.text.String())
	}
	if log.count("level=INFO") != 1 || log.count("problem=connection_refused advice=") != 1 || log.count("secret") > 0 {
		t.Errorf("the log is:\n%s", log.text.String())
	}
}

func TestSet_EachProblem_OneLogLineUntilItChanges(t *testing.T) {
	f := newFakeServer(t, `{"id":"other","object":"model"}`)
	var log logged
	m := open(t, Options{Models: []Config{{Name: "fast", BaseURL: f.url, Key: "sk-secret", Model: "stories"}}, Log: log.logger()}).Default()
	await(t, m, Status{Unreachable, openai.UnknownModel})
	f.set(http.StatusUnauthorized, stories)
	await(t, m, Status{Unreachable, openai.WrongKey})
	f.set(http.StatusServiceUnavailable, stories)
	await(t, m, Status{Unreachable, openai.ServerError})
	f.set(http.StatusOK, stories)
	await(t, m, Status{State: Ready})
	for _, problem := range []openai.Problem{openai.UnknownModel, openai.WrongKey, openai.ServerError} {
		if n := log.count("problem=" + string(problem)); n != 1 {
			t.Errorf("%d lines have the problem %s, want 1", n, string(problem))
		}
	}
	if log.count("secret") > 0 {
		t.Errorf("the log contains the key:\n%s", log.text.String())
	}
}

func TestModel_NoName_TakesFirstListedAndKeepsIt(t *testing.T) {
	f := newFakeServer(t, stories)
	f.set(http.StatusServiceUnavailable, stories)
	m := open(t, Options{Models: []Config{{Name: "fast", BaseURL: f.url, Key: "sk-secret"}}}).Default()
	await(t, m, Status{Unreachable, openai.ServerError})
	if server := m.Server(); server.BaseURL != f.url || server.Key != "sk-secret" || server.Name != "" {
		t.Error("before the list arrives: the server is not the configured one without a name of the model")
	}
	_, err := generate(m)
	if failed, ok := errors.AsType[*stream.ModelError](err); !ok || failed.Code != stream.CodeProviderError ||
		!strings.Contains(failed.Message, "has not listed its models") || !errors.Is(err, openai.ServerError) {
		t.Errorf("before the list arrives: got the error %v", err)
	}
	f.set(http.StatusOK, stories)
	await(t, m, Status{State: Ready})
	if text, err := generate(m); text != "hi" || err != nil || f.asked != "stories" || m.Name() != "fast" || m.Server().Name != "stories" {
		t.Errorf("got %q, %v from the model %q; the name is %q", text, err, f.asked, m.Name())
	}
	f.set(http.StatusOK, `{"id":"newer","object":"model"},`+stories)
	probes := f.probes()
	m.wake()
	eventually(t, func() bool { return f.probes() > probes }, func() string { return "a failed reply causes no probe" })
	if name := m.Server().Name; name != "stories" {
		t.Errorf("after a new model was listed: the model is %q, want still stories", name)
	}
}

func TestModel_LearnedModelRemoved_TakesFirstListedAgain(t *testing.T) {
	f := newFakeServer(t, stories)
	m := open(t, Options{Models: []Config{{Name: "fast", BaseURL: f.url}}}).Default()
	await(t, m, Status{State: Ready})
	f.set(http.StatusOK, `{"id":"newer","object":"model"}`)
	m.wake()
	eventually(t, func() bool { return m.Server().Name == "newer" }, func() string { return "the model is still " + m.Server().Name })
}

func TestModel_ReplyFails_ProbedAtOnce(t *testing.T) {
	f := newFakeServer(t, stories)
	m := open(t, Options{Models: []Config{{Name: "fast", BaseURL: f.url, Model: "stories"}}}).Default()
	await(t, m, Status{State: Ready})
	f.set(http.StatusUnauthorized, "")
	if _, err := generate(m); err == nil {
		t.Error("the reply succeeded")
	}
	await(t, m, Status{Unreachable, openai.WrongKey})
}

func TestModel_ReplyRefusedBecauseOfRequest_NotProbed(t *testing.T) {
	f := newFakeServer(t, stories)
	m := open(t, Options{Models: []Config{{Name: "fast", BaseURL: f.url, Model: "stories"}}}).Default()
	await(t, m, Status{State: Ready})
	for status, doubtful := range map[int]bool{
		400: false, 402: false, 409: false, 413: false, 415: false, 422: false, 401: true, 403: true, 404: true,
	} {
		f.mu.Lock()
		f.chat = status
		f.mu.Unlock()
		probes := f.probes()
		if _, err := generate(m); err == nil {
			t.Errorf("%d: the reply succeeded", status)
		}
		if doubtful {
			eventually(t, func() bool { return f.probes() > probes }, func() string { return fmt.Sprint(status, ": the model is not probed") })
		} else if len(m.failed) > 0 || f.probes() > probes {
			t.Errorf("%d: the model is probed", status)
		}
	}
}

// The model is probed by hand, so that nothing but the test probes it.
func TestModel_ReadyModel_UnreachableAfterTwoFailedProbes(t *testing.T) {
	f := newFakeServer(t, stories)
	var log logged
	m := Open(Options{Models: []Config{{Name: "fast", BaseURL: f.url, Model: "stories"}}, Log: log.logger()}).Default()
	ready, failed := Status{State: Ready}, Status{Unreachable, openai.ServerError}
	for i, step := range []struct {
		status int // of the list; 0 means that a reply completes
		want   Status
		found  bool
	}{
		{429, Status{State: Unprobed}, false}, {503, failed, false}, {429, failed, false}, {200, ready, true},
		{503, ready, false}, {200, ready, true},
		{503, ready, false}, {0, ready, true}, {503, ready, false}, {429, ready, false}, {503, failed, false}, {503, failed, false},
		{0, ready, true}, {429, ready, true}, {429, ready, true}, {401, ready, false}, {401, Status{Unreachable, openai.WrongKey}, false},
	} {
		f.set(max(step.status, http.StatusOK), stories)
		found := true
		if step.status == 0 {
			_, _ = generate(m)
		} else {
			found = m.probe(t.Context())
		}
		if m.Status() != step.want || found != step.found {
			t.Errorf("step %d: the status is %+v, and found is %v; want %+v, %v", i, m.Status(), found, step.want, step.found)
		}
	}
	if n := log.count("the model cannot be used"); n != 3 {
		t.Errorf("%d lines say that the model cannot be used, want 3", n)
	}
}

func TestModel_ReplySucceeds_OutweighsList(t *testing.T) {
	f := newFakeServer(t, `{"id":"other","object":"model"}`)
	m := open(t, Options{Models: []Config{{Name: "fast", BaseURL: f.url, Model: "stories"}}}).Default()
	await(t, m, Status{Unreachable, openai.UnknownModel})
	if text, err := generate(m); text != "hi" || err != nil {
		t.Fatalf("got %q, %v", text, err)
	}
	probes := f.probes()
	eventually(t, func() bool { m.wake(); return f.probes() >= probes+2 }, func() string { return "the model is no longer probed" })
	if m.Status() != (Status{State: Ready}) {
		t.Errorf("after a reply and a probe, the status is %+v, want ready", m.Status())
	}
	f.set(http.StatusUnauthorized, "")
	m.wake()
	await(t, m, Status{Unreachable, openai.WrongKey})
}

func TestSet_NothingConfigured_LocalServerReplacesSimulated(t *testing.T) {
	address := freeAddress(t)
	var log logged
	s := open(t, Options{Models: []Config{{Name: DefaultName}}, Local: []string{"http://" + address + "/v1"}, Log: log.logger()})
	m := s.Default()
	if !s.Simulated() || m.Status() != (Status{State: Simulated}) || log.count("level=WARN") != 1 {
		t.Errorf("without a server: the status is %+v, and the log is:\n%s", m.Status(), log.text.String())
	}
	if server := m.Server(); server != (openai.Options{Name: "parley-simulated"}) {
		t.Errorf("without a server: the server is %q", server.BaseURL)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip("another program took the address")
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: &fakeServer{models: stories, status: http.StatusOK}}}
	server.Start()
	await(t, m, Status{State: Ready})
	if text, err := generate(m); text != "hi" || err != nil || s.Simulated() {
		t.Errorf("with a server: got %q, %v", text, err)
	}
	if log.count("a local model server responds") != 1 || log.count("address=http://"+address+"/v1 model=stories") != 1 {
		t.Errorf("the log is:\n%s", log.text.String())
	}
	server.Close()
	m.wake()
	await(t, m, Status{Unreachable, openai.ConnectionRefused})
	if s.Simulated() {
		t.Error("after the local server has stopped, the simulated model answers again")
	}
}

func TestSet_LocalServerAtStart_UsedAtOnce(t *testing.T) {
	f := newFakeServer(t, `{"id":"first","object":"model"},`+stories)
	s := open(t, Options{Models: []Config{{Name: "stories", Model: "stories"}}, Local: []string{f.url}})
	if s.Simulated() || s.Default().Server() != (openai.Options{BaseURL: f.url, Name: "stories"}) {
		t.Errorf("after Find, the server is %q of %q", s.Default().Server().Name, s.Default().Server().BaseURL)
	}
}

func TestSet_Lookup_ByName(t *testing.T) {
	s := Open(Options{Models: []Config{{Name: "fast", BaseURL: "http://h/v1"}, {Name: "deep", BaseURL: "http://h/v1"}}})
	fast, ok := s.Lookup("")
	deep, ok2 := s.Lookup("deep")
	_, ok3 := s.Lookup("other")
	if !ok || !ok2 || ok3 || fast != s.Default() || fast.Name() != "fast" || deep.Name() != "deep" || !slices.Equal(s.Names(), []string{"fast", "deep"}) {
		t.Errorf("got %v, %v, %v, %v, %v; names %q", fast, ok, deep, ok2, ok3, s.Names())
	}
}

func TestSet_Wrap_GetsConfiguredName(t *testing.T) {
	f := newFakeServer(t, stories)
	calls := make(map[string]int)
	s := open(t, Options{
		Models: []Config{{Name: "fast", BaseURL: f.url, Model: "stories"}},
		Wrap:   func(m stream.Model) stream.Model { calls[m.Name()]++; return m },
	})
	if text, err := generate(s.Default()); text != "hi" || err != nil || calls["fast"] != 1 || len(calls) != 1 {
		t.Errorf("got %q, %v; wrapped %v", text, err, calls)
	}
}

func TestSet_CloseDuringProbe_Returns(t *testing.T) {
	arrived := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	var log logged
	s := Open(Options{Models: []Config{{Name: "fast", BaseURL: server.URL + "/v1"}}, Log: log.logger()})
	s.Start()
	<-arrived
	s.Close() // goleak checks that no goroutine is left
	if log.count("") != 0 || s.Default().Status() != (Status{State: Unprobed}) {
		t.Errorf("a probe that was stopped changed the status to %+v", s.Default().Status())
	}
}
