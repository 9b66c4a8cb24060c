package openai

import (
	"encoding/json"
	"strings"
	"testing"

	"parley/stream"
)

// thought cuts the block off a text that arrives in pieces. It returns the rest, and whether a piece had reasoning.
func thought(pieces ...string) (rest string, reasoned bool) {
	var t thinking
	for _, piece := range pieces {
		text, r := t.cut([]byte(piece))
		rest, reasoned = rest+string(text), reasoned || r
	}
	return rest + string(t.end()), reasoned
}

func TestThinking_BlockAtBeginning_CutOff(t *testing.T) {
	for _, test := range []struct {
		text, want string
		reasoned   bool
	}{
		{"Hello", "Hello", false},
		{"", "", false},
		{"<think>hm</think>Hello", "Hello", true},
		{"<think></think>Hello", "Hello", true},
		{"\n <think>\nhm < 5 </thin </think>\n\n Hello\n", "Hello\n", true},
		{"<think>hm, it never ends </thin", "", true},
		{"<think>hm</think>", "", true},
		{"<think>hm</think>\n", "", true},
		{"<think>hm</think>a <think>b</think>", "a <think>b</think>", true},
		{"Say <think>hm</think>", "Say <think>hm</think>", false},
		{" \n Hello", " \n Hello", false},
		{"<thing>", "<thing>", false},
		{" <thin", " <thin", false},
		{" ", " ", false},
		{strings.Repeat(" ", maxBlank) + "<think>hm</think>a", "a", true},
		{strings.Repeat(" ", maxBlank+1) + "<think>hm</think>a", strings.Repeat(" ", maxBlank+1) + "<think>hm</think>a", false},
	} {
		pieces := [][]string{{test.text}, strings.Split(test.text, "")}
		for at := range test.text {
			pieces = append(pieces, []string{test.text[:at], test.text[at:]})
		}
		for _, pieces := range pieces {
			if got, reasoned := thought(pieces...); got != test.want || reasoned != test.reasoned {
				t.Errorf("%q: got %q, %v; want %q, %v", pieces, got, reasoned, test.want, test.reasoned)
			}
		}
	}
}

func delta(field, text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return `data: {"choices":[{"index":0,"delta":{"` + field + `":` + string(quoted) + `},"finish_reason":null}]}` + "\n\n"
}

// ended returns the event with which a model ends a reply.
func ended(reason string) string {
	return `data: {"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}` + "\n\n"
}

func TestGenerate_Reasoning_NotInText(t *testing.T) {
	for name, test := range map[string]struct {
		body, text, finish, code string
		signs                    bool
	}{
		"block in the text":     {delta("content", "\n<thi") + delta("content", "nk>hm</think>\nHi") + ended("stop"), "Hi", "stop", "", true},
		"block without an end":  {delta("content", "<think>hm") + ended("length"), "", "length", stream.CodeEmptyReply, true},
		"part of a tag":         {delta("content", "<thin") + ended("stop"), "<thin", "stop", "", false},
		"reasoning_content":     {delta("reasoning_content", "hm") + delta("content", "Hi") + ended("stop"), "Hi", "stop", "", true},
		"reasoning":             {delta("reasoning", "hm") + delta("content", "Hi") + ended("stop"), "Hi", "stop", "", true},
		"thinking":              {delta("thinking", "hm") + delta("content", "Hi") + ended("stop"), "Hi", "stop", "", true},
		"reasoning, unusual":    {strings.Replace(delta("reasoning", "hm"), `"delta":{`, `"delta":{"tool_calls":[],`, 1) + delta("content", "Hi") + ended("stop"), "Hi", "stop", "", true},
		"empty reasoning":       {delta("reasoning", "") + delta("content", "Hi") + ended("stop"), "Hi", "stop", "", false},
		"reasoning until limit": {delta("reasoning", "hm") + ended("length"), "", "length", stream.CodeEmptyReply, true},
		"refusal":               {delta("refusal", "I can't") + delta("refusal", " do that.") + ended("stop"), "I can't do that.", "refusal", "", false},
		"call of a tool":        {strings.Replace(delta("x", ""), `"x":""`, `"tool_calls":[{"index":0}]`, 1) + ended("tool_calls"), "", "tool_calls", stream.CodeEmptyReply, false},
		"empty list of tools":   {strings.Replace(delta("x", ""), `"x":""`, `"content":"Hi","tool_calls":[]`, 1) + ended("stop"), "Hi", "stop", "", false},
		"finish reason alone":   {ended("stop"), "", "stop", stream.CodeEmptyReply, false},
	} {
		t.Run(name, func(t *testing.T) {
			model := modelWithResponse(t, chunked(test.body+"data: [DONE]\n\n", true))
			outcome, text := pumped(model)
			code := ""
			if outcome.Err != nil {
				code = outcome.Err.Code
			}
			if text != test.text || outcome.Result.FinishReason != test.finish || code != test.code || outcome.Result.Reasoned != test.signs {
				t.Errorf("the reply is %q, %+v, %v", text, outcome.Result, outcome.Err)
			}
			if want := test.signs && !strings.HasPrefix(name, "block"); outcome.Result.ReasonedApart != want {
				t.Errorf("ReasonedApart is %v, want %v", outcome.Result.ReasonedApart, want)
			}
			signs := 0
			request := hello
			request.Reasoning = func() { signs++ }
			if _, err := model.Generate(t.Context(), request, func([]byte) {}); err != nil || (signs > 0) != test.signs {
				t.Errorf("Reasoning was called %d times, the error is %v", signs, err)
			}
		})
	}
}
