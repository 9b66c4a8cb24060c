package record

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"parley/conversation"
	"parley/conversation/window"
	"parley/stream"
)

// fill sets v, or each field of v if it is a struct, to a nonzero value. Numbers differ between fields.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(string(rune('a'+*n%26)) + "äß\x00")
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n) * 1_000_003)
	case reflect.Uint8:
		v.SetUint(uint64(*n % 256))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.25)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[window.Terms]() {
			v.Set(reflect.ValueOf(window.TermsOf("words of a text, and of another text")))
			return
		}
		if v.Type() == reflect.TypeFor[[]string]() {
			v.Set(reflect.ValueOf([]string{"äß\x00", ""}))
			return
		}
		v.Set(reflect.ValueOf(json.RawMessage(`{"n":1.50, "s":"<>"}`)).Convert(v.Type()))
	default:
		panic("fill does not know fields of the kind " + v.Type().String())
	}
}

// filled returns a value of S in which no field is zero.
func filled[S any]() S {
	var s S
	n := 0
	fill(reflect.ValueOf(&s).Elem(), &n)
	return s
}

// codec holds the functions that write and read one kind of record. left names the fields that the record lacks.
type codec[S any] struct {
	write func(b []byte, s *S) []byte
	text  func(record string, s *S) error
	bytes func(record []byte, s *S) error
	left  []string
}

func messages() codec[conversation.Message] {
	return codec[conversation.Message]{
		AppendMessage, ReadMessage[string], ReadMessage[[]byte], []string{"ID", "SessionID", "CreatedAt", "Terms"},
	}
}

func indexed() codec[conversation.Indexed] {
	return codec[conversation.Indexed]{func(b []byte, x *conversation.Indexed) []byte {
		b, _ = x.Terms.AppendBinary(AppendIndexed(b, x))
		return b
	}, ReadIndexed[string], ReadIndexed[[]byte], []string{"ID", "Vector"}}
}

func summaries() codec[conversation.Summary] {
	return codec[conversation.Summary]{func(b []byte, s *conversation.Summary) []byte {
		return AppendSummaryFigures(AppendSummaryText(b, s), s)
	}, ReadSummary[string], ReadSummary[[]byte], []string{"Last"}}
}

func sessions() codec[conversation.Session] {
	return codec[conversation.Session]{AppendSession, ReadSession[string], ReadSession[[]byte], []string{"ID"}}
}

func models() codec[conversation.ModelConfig] {
	return codec[conversation.ModelConfig]{AppendModel, ReadModel[string], ReadModel[[]byte], nil}
}

func liveTurns() codec[LiveTurn] {
	return codec[LiveTurn]{AppendLiveTurn, ReadLiveTurn[string], ReadLiveTurn[[]byte], nil}
}

func requests() codec[Request] {
	return codec[Request]{AppendRequest, ReadRequest[string], ReadRequest[[]byte], nil}
}

// check writes want, reads it from a string and from bytes, and compares all fields except those in c.left.
func (c codec[S]) check(t *testing.T, want S) {
	t.Helper()
	written := c.write([]byte("before"), &want)[len("before"):]
	var fromText, fromBytes S
	if err := c.text(string(written), &fromText); err != nil {
		t.Error(err)
	}
	if err := c.bytes(written, &fromBytes); err != nil {
		t.Error(err)
	}
	clear(written) // the values that were read must not share this memory
	for _, got := range []S{fromText, fromBytes} {
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(want, c.left...), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%T (-want +got):\n%s", want, diff)
		}
	}
}

// TestRecords_EveryField_ReadBack fails if a struct has a field that its record lacks.
func TestRecords_EveryField_ReadBack(t *testing.T) {
	messages().check(t, filled[conversation.Message]())
	messages().check(t, conversation.Message{})
	messages().check(t, conversation.Message{
		Usage: new(conversation.Usage), Context: new(conversation.ContextReport), Error: new(conversation.ReplyError),
	})
	indexed().check(t, filled[conversation.Indexed]())
	indexed().check(t, conversation.Indexed{})
	summaries().check(t, filled[conversation.Summary]())
	summaries().check(t, conversation.Summary{})
	sessions().check(t, filled[conversation.Session]())
	sessions().check(t, conversation.Session{})
	for i := range reflect.TypeFor[conversation.Session]().NumField() { // each field alone is written
		var session conversation.Session
		n := 0
		fill(reflect.ValueOf(&session).Elem().Field(i), &n)
		sessions().check(t, session)
	}
	models().check(t, filled[conversation.ModelConfig]())
	models().check(t, conversation.ModelConfig{})
	models().check(t, conversation.ModelConfig{Temperature: new(float64), TopP: new(float64), Seed: new(int64)})
	liveTurns().check(t, filled[LiveTurn]())
	liveTurns().check(t, LiveTurn{})
	requests().check(t, filled[Request]())
	requests().check(t, Request{})
}

func TestReadLifetime_ReturnsTimesOfSession(t *testing.T) {
	want := filled[conversation.Session]()
	created, expires, err := ReadLifetime(AppendSession(nil, &want))
	if created != want.CreatedAt || expires != want.ExpiresAt || err != nil {
		t.Errorf("created at %v, expires at %v, error %v, want %v and %v", created, expires, err, want.CreatedAt, want.ExpiresAt)
	}
}

// The test appends a field as a later version would, under a bit that this version does not know. Then it increments the first
// byte, which is the version of the format.
func TestRead_LaterVersion_NewFieldSkippedNewFormatRefused(t *testing.T) {
	want := filled[conversation.Message]()
	var got conversation.Message
	if err := ReadMessage(AppendMessage(nil, &want), &got); err != nil {
		t.Fatal(err)
	}
	written := AppendMessage(nil, &want)
	flags := bytes.LastIndexByte(written, hasUsage|isEstimated|hasContext|hasError|hasWindow|hasSimilarity|hasFigures)
	written[flags] |= 0x80
	var later conversation.Message
	if err := ReadMessage(append(written, "what is this?"...), &later); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(got, later); diff != "" {
		t.Errorf("the message with a new field reads differently (-want +got):\n%s", diff)
	}
	written[0]++
	if ReadMessage(written, &later) == nil {
		t.Error("ReadMessage accepts the next version")
	}
	x := AppendIndexed(nil, new(conversation.Indexed))
	x[0]++
	if ReadIndexed(x, new(conversation.Indexed)) == nil {
		t.Error("ReadIndexed accepts the next version")
	}
}

// TestRead_CutShort_Malformed cuts records after each byte.
func TestRead_CutShort_Malformed(t *testing.T) {
	wantMalformed(t, messages(), 0)
	wantMalformed(t, summaries(), len(appendInts(nil, filled[conversation.Summary]().Replaced))) // old figures have no Replaced
	wantMalformed(t, sessions(), 0)
	wantMalformed(t, models(), 0)
	wantMalformed(t, liveTurns(), 0)
	wantMalformed(t, requests(), 0)
	short := AppendIndexed(nil, new(conversation.Indexed))
	for n := range short {
		if ReadIndexed(short[:n], new(conversation.Indexed)) == nil {
			t.Errorf("ReadIndexed accepts the first %d of %d bytes", n, len(short))
		}
	}
}

// wantMalformed cuts a record after each number of bytes. Reading it must fail, unless exactly its optional bytes are missing.
// optional is the number of optional bytes, which are at the end.
func wantMalformed[S any](t *testing.T, c codec[S], optional int) {
	t.Helper()
	value := filled[S]()
	written := c.write(nil, &value)
	for n := range written {
		var got S
		if err := c.bytes(written[:n], &got); (err == nil) != (n == len(written)-optional && optional > 0) {
			t.Errorf("%T: reading the first %d of %d bytes: error %v", value, n, len(written), err)
		}
	}
}

func TestRead_AnyBytes_NoPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		garbage := append([]byte{Version}, rapid.SliceOf(rapid.Byte()).Draw(t, "record")...)
		for _, record := range [][]byte{garbage, garbage[1:]} {
			_ = ReadMessage(record, new(conversation.Message))
			_ = ReadIndexed(record, new(conversation.Indexed))
			_ = ReadSummary(record, new(conversation.Summary))
			_ = ReadSession(record, new(conversation.Session))
			_ = ReadModel(record, new(conversation.ModelConfig))
			_ = ReadLiveTurn(record, new(LiveTurn))
			_ = ReadRequest(record, new(Request))
		}
	})
}

// TestAppendMessage_LayoutUnchanged compares a record byte by byte, because nodes of other versions read it.
func TestAppendMessage_LayoutUnchanged(t *testing.T) {
	m := conversation.Message{
		Role: conversation.Assistant, Status: stream.Failed, Content: "ä", Metadata: []byte("{}"), FinishReason: "stop", Tokens: 100,
		Usage: &conversation.Usage{Prompt: 1, Completion: 2, Total: 3},
		Context: &conversation.ContextReport{
			Policy: conversation.FIFO, PromptTokens: 4, MaxTokens: 64, Kept: conversation.MessageRange{Count: 5, First: "a", Last: "b"},
			Dropped: conversation.MessageRange{Count: 6}, InSummary: conversation.MessageRange{Last: "c"}, Summarised: true,
			SummaryFault: conversation.SummaryLate, Similarity: conversation.ByWords,
		},
		Error: &conversation.ReplyError{Code: "x", Message: "y"},
	}
	want := "\x01\x09assistant\x06failed\x02ä\x02{}\x04stop\xc8\x01\x3d\x02\x04\x06" +
		"\x04fifo\x08\x80\x01\x0a\x01a\x01b\x0c\x00\x00\x00\x00\x01c\x00\x00\x00\x011\x04late\x01x\x01y\x05words"
	if got := string(AppendMessage(nil, &m)); got != want {
		t.Errorf("the record is %q, want %q", got, want)
	}
	m.Usage.Reasoning, m.Context.ModelTokens = 1, 32
	want = strings.Replace(want, "\xc8\x01\x3d", "\xc8\x01\x7d", 1) + "\x04\x02\x40"
	if got := string(AppendMessage(nil, &m)); got != want {
		t.Errorf("with figures, the record is %q, want %q", got, want)
	}
	var later conversation.Message // from a later version, with a third figure
	if err := ReadMessage(strings.TrimSuffix(want, "\x04\x02\x40")+"\x06\x02\x40\x0a", &later); err != nil || *later.Usage != *m.Usage || *later.Context != *m.Context {
		t.Errorf("the record of a later version is %+v, %v", later, err)
	}
}

// TestAppendSession_NoSettings_LayoutUnchanged compares a record byte by byte: a session without instructions and without a
// configured model has the bytes that earlier versions wrote.
func TestAppendSession_NoSettings_LayoutUnchanged(t *testing.T) {
	s := conversation.Session{
		UserID: "u", CreatedAt: 1, ExpiresAt: 2, LastActivity: 3, Metadata: []byte("{}"), Context: conversation.DefaultContextConfig,
	}
	want := "\x02\x04\x01\x01u\x06\x02{}\x80\x40\x04fifo"
	if got := string(AppendSession(nil, &s)); got != want {
		t.Errorf("the record is %q, want %q", got, want)
	}
	s.MessageCount, s.Fence, s.Head = 2, 1, "m"
	want = "\x02\x04\x03" + want[3:] + "\x04\x00\x00\x00\x00\x02\x01m\x00\x00\x00"
	if got := string(AppendSession(nil, &s)); got != want {
		t.Errorf("the record after a turn is %q, want %q", got, want)
	}
}

// sampleMessages returns the messages for the benchmarks, by name.
func sampleMessages() map[string]*conversation.Message {
	const first, last = "msg_VbfswXd7TqA0uXa2", "msg_VbfswXd7TqA0uXa3"
	return map[string]*conversation.Message{
		"user": {Role: conversation.User, Content: "What is a lighthouse for?", Tokens: 6, Status: stream.Completed},
		"reply": {
			Role: conversation.Assistant, Content: strings.Repeat("word ", 200), Tokens: 200, Status: stream.Completed, FinishReason: "stop",
			Usage: &conversation.Usage{Prompt: 800, Completion: 200, Total: 1000},
			Context: &conversation.ContextReport{
				Policy: conversation.FIFO, PromptTokens: 800, MaxTokens: 4096,
				Kept: conversation.MessageRange{Count: 12, First: first, Last: last},
			},
		},
	}
}

func BenchmarkMessage(b *testing.B) {
	for name, m := range sampleMessages() {
		buffer := AppendMessage(nil, m)
		b.Run("write/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buffer = AppendMessage(buffer[:0], m)
			}
			b.ReportMetric(float64(len(buffer)), "bytes")
		})
		b.Run("read bytes/"+name, func(b *testing.B) { benchmarkRead(b, buffer) })
		b.Run("read string/"+name, func(b *testing.B) { benchmarkRead(b, string(buffer)) })
	}
}

func benchmarkRead[T string | []byte](b *testing.B, record T) {
	b.ReportAllocs()
	for b.Loop() {
		var m conversation.Message
		if err := ReadMessage(record, &m); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSession(b *testing.B) {
	session := conversation.Session{
		UserID: "user_0123456789ABCDEF", CreatedAt: 1_795_323_142_410, ExpiresAt: 1_795_409_542_410, LastActivity: 1_795_323_142_410,
		Context: conversation.DefaultContextConfig,
	}
	used := session
	used.MessageCount, used.HistoryTokens, used.Fence = 10, 1200, 5
	used.TokenUsage = conversation.TokenUsage{Total: 4000, Prompt: 3000, Completion: 1000}
	used.Head, used.LiveReply, used.LiveMessage = "msg_VbfswXd7TqA0uXa2", "msg_VbfswXd7TqA0uXa2", "msg_VbfswXd7TqA0uXa1"
	used.Metadata = []byte(`{"title":"Lighthouses"}`)
	for name, s := range map[string]*conversation.Session{"new": &session, "in use": &used} {
		buffer := AppendSession(nil, s)
		b.Run("write/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buffer = AppendSession(buffer[:0], s)
			}
			b.ReportMetric(float64(len(buffer)), "bytes")
		})
		b.Run("read/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := ReadSession(buffer, new(conversation.Session)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The records share memory for their terms, so a reader must not overwrite the terms that it has returned.
func TestIndexedReader_SeveralRecords_EachKeepsItsTerms(t *testing.T) {
	var reader IndexedReader[string]
	all := []window.Terms{window.TermsOf("a long first record"), nil, window.TermsOf("short"), window.TermsOf("the last and the longest of all records")}
	read := make([]conversation.Indexed, len(all))
	for i, terms := range all {
		written, _ := terms.AppendBinary(AppendIndexed(nil, &conversation.Indexed{Role: conversation.Assistant, Tokens: i}))
		if err := reader.Read(string(written), &read[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, terms := range all {
		want := conversation.Indexed{Role: conversation.Assistant, Tokens: i, Terms: terms}
		if diff := cmp.Diff(want, read[i]); diff != "" {
			t.Errorf("record %d differs:\n%s", i, diff)
		}
	}
}
