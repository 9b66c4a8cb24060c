package openai

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// reference is an event that encoding/json decodes completely. chunk, in contrast, keeps the escapes of the content.
type reference struct {
	Object  any `json:"object"`
	Choices []struct {
		Index int `json:"index"`
		Delta struct {
			Content *string `json:"content"`
		} `json:"delta"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage any `json:"usage"`
	Error any `json:"error"`
}

// checkScan decodes data with scanChunk, with decodeChunk and with encoding/json. It fails the test if the results differ.
// It reports whether scanChunk accepted data.
func checkScan(t *testing.T, data []byte) (scanned bool) {
	t.Helper()
	e, scanned := scanChunk(data)
	var ref reference
	refErr := json.Unmarshal(data, &ref)
	c, err := decodeChunk(data)
	if scanned {
		switch {
		case refErr != nil || err != nil:
			t.Fatalf("scanChunk accepted %q, which encoding/json refuses: %v, %v", data, refErr, err)
		case ref.Object != nil && ref.Object != "chat.completion.chunk", ref.Error != nil, c.failed():
			t.Fatalf("scanChunk accepted %q, but that is an error", data)
		case len(ref.Choices) > 1 || len(ref.Choices) == 1 && ref.Choices[0].Index != 0:
			t.Fatalf("scanChunk accepted %q, but must accept only one choice with index 0", data)
		}
		want := event{choice: len(c.Choices) == 1, usage: c.usage()}
		if want.choice {
			if want.content, err = c.Choices[0].content(); err != nil {
				t.Fatalf("scanChunk accepted %q, but decodeChunk does not: %v", data, err)
			}
			if refusal, err := c.Choices[0].refusal(); err != nil || refusal != nil || c.Choices[0].callsTool() {
				t.Fatalf("scanChunk accepted %q, which has a refusal or calls a tool", data)
			}
			want.reason, want.reasoned = []byte(c.Choices[0].reason()), c.Choices[0].reasoned()
		}
		if !sameEvent(e, want) {
			t.Fatalf("for %q, scanChunk returned %+v, and decodeChunk returned %+v", data, e, want)
		}
	}
	if refErr != nil || err != nil {
		return scanned
	}
	for i := range c.Choices {
		content, err := c.Choices[i].content()
		if err != nil {
			t.Fatalf("encoding/json accepts the content of %q as a string, but decodeChunk does not", data)
		}
		var want string
		if s := ref.Choices[i].Delta.Content; s != nil {
			want = *s
		}
		if got := decodeAll(content); got != want {
			t.Fatalf("the content of %q is %q, want %q", data, got, want)
		}
	}
	return scanned
}

func sameEvent(a, b event) bool {
	return a.choice == b.choice && string(a.content) == string(b.content) && (a.content == nil) == (b.content == nil) &&
		string(a.reason) == string(b.reason) && a.reasoned == b.reasoned && a.usage == b.usage
}

// decodeAll decodes consecutive JSON strings, given without their quotes. Like encoding/json, it replaces each invalid byte
// with U+FFFD.
func decodeAll(contents ...[]byte) string {
	var t text
	var all []byte
	for _, content := range contents {
		all = append(all, t.decode(content)...)
	}
	return string([]rune(string(append(all, t.end()...))))
}

func capturedEvents(t testing.TB) (events []string) {
	t.Helper()
	names, _ := filepath.Glob("testdata/*/*.txt")
	for _, name := range names {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(file), "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				events = append(events, data)
			}
		}
	}
	return events
}

// seeds are events in forms that the captures do not contain.
var seeds = []string{
	`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o","service_tier":"default","system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"abc"}`,
	`{"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": null}], "usage": null}`,
	`{"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"hm"},"finish_reason":null}]}`,
	`{"choices":[{"index":0,"delta":{"content":"\ud83d\ude00\u0041\n"}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"\ud83d"}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"\ude00 \ud83d\ud83d\ude00 \ud83dx\ud83d\n"}}]}`,
	`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]},"finish_reason":null}]}`,
	`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":""}]}`,
	`{"choices":[{"index":0,"delta":{"content":"a"},"Finish_Reason":"stop"}]}`,
	`{"choices":[{"index":0,"delta":{"content":"a","Content":"b"}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"a","content":"b"}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"a"},"delta":{}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}}],"choices":[]}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}}],"choices":[{"index":0,"delta":{}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}}],"error":"no"}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}}],"error":null,"error":false}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":5}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}}],"` + "\u212aey" + `":1,"uſage":{"prompt_tokens":1}}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}}],"\u0065rror":{"message":"x"}}`,
	`{"choices":[{"index":00,"delta":{"content":"a"}}]}`,
	`{"choices":[{"index":0.5,"delta":{"content":"a"}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1}]}`,
	`{"choices":[{"index":0,"delta":{"content":["a"]}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}}],"created":01}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}}],"created":-1.5e3}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}}],"x":truefalse}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}}]} {}`,
	`{"choices":[{"index":0,"delta":{"content":"a"}}],}`,
	`{"choices":[{"index":0,"delta":{"content":"a` + "\x01" + `"}}]}`,
	"{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\xf0\x9f\"}}]}",
	`{"choices":[{"index":0,"delta":{"content":"\u12"}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"\q"}}]}`,
	`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
	`{"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":1,"x":null}}}`,
	`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":-1,"completion_tokens":3},"timings":{"a_b":1.25}}`,
	`{"choices":[{"index":0,"delta":{},"finish_reason":"st\u006fp"}],"usage":{"prompt_tokens":1.0,"completion_tokens":3}}`,
	`{"choices":[{"index":0,"finish_reason":"stop","finish_reason":null}],"usage":{"prompt_tokens":01,"completion_tokens":1e3}}`,
	`{"choices":[],"usage":{"prompt_tokens":1000000001,"completion_tokens":3},"usage":null}`,
	`{"choices":[],"usage":{"prompt_tokens":7,"Prompt_Tokens":8,"prompt_tokens":9}}`,
	`{"choices":[{"index":0,"delta":{"reasoning_content":"hm","reasoning":"hm","thinking":null}}]}`,
	`{"choices":[{"index":0,"delta":{"reasoning":"","content":"a","reasoning_content":{"a":"b"}}}]}`,
	`{"choices":[{"index":0,"delta":{"reasoning":"a","reasoning":""}}]}`,
	`{"choices":[{"index":0,"delta":{"Reasoning":"a","content":"b"}}]}`,
	`{"choices":[{"index":0,"delta":{"thinking":"a","content":"b"},"finish_reason":"stop"}]}`,
	`{"choices":[{"index":0,"delta":{"content":null,"refusal":"No."}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"a","tool_calls":null,"function_call":{"name":"f"}}}]}`,
	`{"choices":[{"index":0,"delta":{"content":"a","refusal":5}}]}`,
	`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14,"completion_tokens_details":{"reasoning_tokens":6,"x":1}}}`,
	`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":20,"completion_tokens_details":{"reasoning_tokens":6}}}`,
	`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"completion_tokens_details":{"reasoning_tokens":6}}}`,
	`{"choices":[],"usage":{"completion_tokens_details":null,"total_tokens":null,"completion_tokens":3,"prompt_tokens":5}}`,
	`{"choices":[],"usage":{"completion_tokens":3,"completion_tokens_details":{"Reasoning_Tokens":2,"reasoning_tokens":"1"},"total_tokens":"4"}}`,
	`{"object":"error","message":"no"}`,
	`{"id":"x","error":{"message":"no","code":500}}`,
	`null`, `[]`, `"x"`, `{`, ``, `{"choices":[{"index":0,"delta":{"content":"`, `{"choices":[{"delta":null}]}`, `{"choices":null}`,
}

func TestScanChunk_RecordedEvents_SameAsEncodingJSON(t *testing.T) {
	events := capturedEvents(t)
	scanned, plain := 0, 0
	for _, event := range events {
		if checkScan(t, []byte(event)) {
			scanned++
		}
		if strings.Contains(event, `"choices":[`) && !strings.Contains(event, `"index":1`) && !strings.Contains(event, `"logprobs":{`) &&
			!strings.Contains(event, `"error"`) {
			plain++
		}
	}
	if scanned != plain || plain < 100 {
		t.Errorf("scanChunk accepted %d of %d events of the common forms (%d events in all)", scanned, plain, len(events))
	}
}

func TestScanChunk_RareAndBrokenEvents_SameAsEncodingJSON(t *testing.T) {
	for _, seed := range seeds {
		checkScan(t, []byte(seed))
		for at := range seed { // cut the event before this byte; remove the byte; replace the byte
			checkScan(t, []byte(seed[:at]))
			checkScan(t, []byte(seed[:at]+seed[at+1:]))
			for _, b := range `"\{}[],:0u ` {
				checkScan(t, []byte(seed[:at]+string(b)+seed[at+1:]))
			}
		}
	}
	for i, quick := range []bool{true, true, true, true, true, true, false, true, false, false, false} {
		if _, ok := scanChunk([]byte(seeds[i])); ok != quick {
			t.Errorf("scanChunk accepted %s: %v, want %v", seeds[i], ok, quick)
		}
	}
}

func FuzzScanChunk(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	for _, event := range capturedEvents(f) {
		f.Add([]byte(event))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkScan(t, data) })
}

// checkShape scans two events with one shape. It fails the test if the result for the second event differs from the result
// of scanChunk.
func checkShape(t *testing.T, first, second []byte) {
	t.Helper()
	var h shape
	h.scan(first)
	got, gotOK := h.scan(second)
	want, wantOK := scanChunk(second)
	if gotOK != wantOK || gotOK && !sameEvent(got, want) {
		t.Fatalf("%q after %q: scan returned %+v, %v; scanChunk returned %+v, %v", second, first, got, gotOK, want, wantOK)
	}
}

func TestShape_SecondEvent_SameResultAsScanChunk(t *testing.T) {
	events := append(capturedEvents(t), seeds...)
	for i, event := range events {
		checkShape(t, []byte(events[(i+1)%len(events)]), []byte(event))
		scanned, ok := scanChunk([]byte(event))
		content := scanned.content
		if !ok || content == nil {
			continue
		}
		for _, other := range append([]string{``, `x`, `"`, `\`, `\\`, `a","x":"b`, `\u12`, `\ud83d`, "\n", `\"}`}, string(content[:len(content)/2])) {
			at := strings.Index(event, `"content":`) + len(`"content":`)
			at += strings.Index(event[at:], `"`) + 1
			checkShape(t, []byte(event), []byte(event[:at]+other+event[at+len(content):]))
		}
		for at := range event {
			checkShape(t, []byte(event), []byte(event[:at]+event[at+1:]))
			checkShape(t, []byte(event), []byte(event[:at]+"1"+event[at+1:]))
		}
	}
}

// FuzzShape changes an event, and scans the original event and the changed event with one shape. The result for the changed
// event must equal the result of scanChunk.
func FuzzShape(f *testing.F) {
	for _, seed := range seeds {
		f.Add(seed, len(seed)/2, 0, "x")
		f.Add(seed, strings.Index(seed, `"a"`)+1, 1, "b")
	}
	f.Fuzz(func(t *testing.T, first string, at, cut int, insert string) {
		if at < 0 || cut < 0 || at > len(first) || cut > len(first)-at {
			return
		}
		checkShape(t, []byte(first), []byte(first[:at]+insert+first[at+cut:]))
	})
}

// FuzzContent checks that scanChunk accepts any valid content. It also splits the content into two events, which must
// decode to the same text.
func FuzzContent(f *testing.F) {
	for _, seed := range []string{`Hello`, `\ud83d\ude00`, `\ud83d\ud83d\ude00\ude00`, `\"\\\/\b\f\n\r\t\u0000`, "\xf0\x9f\x98\x80", `a\`, `\u12g4`} {
		f.Add(seed, 3)
	}
	f.Fuzz(func(t *testing.T, content string, at int) {
		event := fmt.Appendf(nil, `{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}`, content)
		scanned := checkScan(t, event)
		var want string
		if json.Unmarshal([]byte(`"`+content+`"`), &want) != nil {
			return
		}
		if !scanned {
			t.Fatalf("scanChunk refused the valid string %q", content)
		}
		if at < 0 || at > len(content) || !json.Valid([]byte(`"`+content[:at]+`"`)) || !json.Valid([]byte(`"`+content[at:]+`"`)) {
			return
		}
		if got := decodeAll([]byte(content[:at]), []byte(content[at:])); got != want {
			t.Fatalf("%q split at %d decodes to %q, want %q", content, at, got, want)
		}
	})
}

func TestText_SplitSurrogatePair_Joined(t *testing.T) {
	for _, test := range []struct{ sent, want string }{
		{`\ud83d|\ude00`, "😀"},
		{`a\ud83d||\ude00b`, "a😀b"},
		{`\ud83d|x`, "\uFFFDx"},
		{`\ud83d|\n`, "\uFFFD\n"},
		{`\ud83d|\ud83d|\ude00`, "\uFFFD😀"},
		{`\ude00|\ud83d`, "\uFFFD\uFFFD"},
		{`\ud83d`, "\uFFFD"},
		{"\xf0\x9f|\x98\x80", "😀"},
	} {
		var body strings.Builder
		for _, content := range strings.Split(test.sent, "|") {
			fmt.Fprintf(&body, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"}}]}\n", content)
		}
		body.WriteString("data: [DONE]\n")
		if _, text, err := readAnswer(strings.NewReader(body.String())); err != nil || text != test.want {
			t.Errorf("contents %s: got the text %q, %v, want %q", test.sent, text, err, test.want)
		}
	}
}
