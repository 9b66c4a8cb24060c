package openai

import (
	"fmt"
	"strings"
	"testing"

	"parley/stream"
)

// refusals are error responses of servers. The first is a recorded response; the others are bodies that users of the servers have
// reported.
var refusals = map[string]struct {
	body string
	want overflow
}{
	"OpenAI": {`{"error":{"message":"This model's maximum context length is 4097 tokens. However, your messages resulted in 9203 tokens. ` +
		`Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, overflow{9203, 4097}},
	"OpenAI, newer": {`{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.",` +
		`"type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}`, overflow{}},
	"DeepSeek": {`{"error":{"message":"This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the ` +
		`messages, 8192 in the completion). Please reduce the length of the messages or completion.","type":"invalid_request_error",` +
		`"param":null,"code":"invalid_request_error"}}`, overflow{122942, 131072}},
	"vLLM, older": {`{"object":"error","message":"This model's maximum context length is 6048 tokens. However, you requested 6616 tokens (568 in ` +
		`the messages, 6048 in the completion). Please reduce the length of the messages or completion.","type":"BadRequestError","param":null,"code":400}`,
		overflow{568, 6048}},
	"vLLM": {`{"error":{"message":"'max_tokens' or 'max_completion_tokens' is too large: 1024. This model's maximum context length is 1024 tokens and ` +
		`your request has 12 input tokens (1024 > 1024 - 12).","type":"BadRequestError","param":"max_tokens","code":400}}`, overflow{12, 1024}},
	"vLLM, newer": {`{"error":{"message":"This model's maximum context length is 16384 tokens. However, you requested 8192 output tokens and your ` +
		`prompt contains at least 8193 input tokens, for a total of at least 16385 tokens.","type":"BadRequestError","code":400}}`, overflow{8193, 16384}},
	"llama-cpp-python": {`{"error":{"message":"This model's maximum context length is 512 tokens, however you requested 533 tokens (277 in your ` +
		`prompt; 256 for the completion). Please reduce your prompt; or completion length.","type":"invalid_request_error","code":null}}`, overflow{277, 512}},
	"llama.cpp without a code": {`{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context ` +
		`size or enable context shift","type":"invalid_request_error"}}`, overflow{}},
	"Ollama": {`{"error":{"message":"the input length exceeds the context length","type":"invalid_request_error","param":null,"code":null}}`, overflow{}},
	"LM Studio": {`{"error":"Trying to keep the first 14538 tokens when context the overflows. However, the model is loaded with context length ` +
		`of only 2048 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input"}`, overflow{14538, 2048}},
	"LM Studio, newer": {`{"error":"The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 10247 >= ` +
		`n_ctx: 4096). Try to load the model with a larger context length, or provide a shorter input."}`, overflow{10247, 4096}},
	"SGLang": {`{"object":"error","message":"The input (5000 tokens) is longer than the model's context length (4096 tokens).",` +
		`"type":"BadRequestError","param":null,"code":400}`, overflow{5000, 4096}},
	"SGLang, total": {`{"object":"error","message":"Requested token count exceeds the model's maximum context length of 4096 tokens. You requested ` +
		`a total of 5000 tokens: 3976 tokens from the input messages and 1024 tokens for the completion.","code":400}`, overflow{3976, 4096}},
	"Hugging Face TGI": {`{"error":{"message":"Input validation error: ` + "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 " +
		"`inputs` tokens and 1024 `max_new_tokens`" + `","type":"validation","code":"validation"}}`, overflow{4000, 4096}},
	"Mistral": {`{"object":"error","message":"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context ` +
		`length","type":"invalid_request_error","code":"3051"}`, overflow{40000, 32768}},
	"Anthropic": {`{"error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`, overflow{210000, 200000}},
	"Gemini": {`{"error":{"code":400,"message":"The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",` +
		`"status":"INVALID_ARGUMENT"}}`, overflow{1200293, 1048576}},
}

func wantTooLong(t *testing.T, outcome stream.Outcome, want overflow) {
	t.Helper()
	wantFailed(t, outcome, messageTooLong)
	if err := outcome.Err; err != nil && (overflow{err.PromptTokens, err.ContextTokens}) != want {
		t.Errorf("the prompt has %d tokens and the context %d, want %+v", err.PromptTokens, err.ContextTokens, want)
	}
}

func badRequest(body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func TestGenerate_RefusedForLength_SizesKnown(t *testing.T) {
	for _, name := range []string{"18-ctx-overflow", "19-ctx-overflow-stream"} {
		outcome, _ := pumped(modelWithResponse(t, load(t, "llama-server/"+name+".txt").pieces()...))
		wantTooLong(t, outcome, overflow{3113, 512})
	}
	for name, test := range refusals {
		t.Run(name, func(t *testing.T) {
			outcome, _ := pumped(modelWithResponse(t, badRequest(test.body)))
			wantTooLong(t, outcome, test.want)
			wantNoProviderText(t, outcome.Err, "")
		})
	}
}

func TestGenerate_RefusedForLengthInEvent_OnlyWithoutText(t *testing.T) {
	event := `data: {"error":{"message":"prompt is too long: 21 tokens > 20 maximum","type":"invalid_request_error"}}` + "\n\n"
	outcome, _ := pumped(modelWithResponse(t, chunked(event, true)))
	wantTooLong(t, outcome, overflow{21, 20})
	outcome, text := pumped(modelWithResponse(t, chunked(delta("content", "\n<")+event, true)))
	if wantTooLong(t, outcome, overflow{21, 20}); text != "" { // a shorter prompt gets a new reply
		t.Errorf("the text is %q, want none", text)
	}
	outcome, text = pumped(modelWithResponse(t, chunked(someText+event, true)))
	if outcome.Err == nil || outcome.Err.Code != stream.CodeProviderError || outcome.Err.Message != messageTooLong || text != "Hello" {
		t.Errorf("after text, the outcome is %v with the text %q", outcome.Err, text)
	}
}

func TestGenerate_OtherBadRequest_ProviderError(t *testing.T) {
	for _, body := range []string{
		`{"error":{"message":"Unknown field","type":"invalid_request_error","code":400}}`,
		`{"error":"model is required"}`,
		`{"error":{"message":"invalid message: prompt is too long: 5 tokens > 4 maximum","type":"invalid_request_error"}}`, // a quoted prompt
		`{"error":{"message":"","n_ctx":512}}`,
		`{"error":{"message":5}}`, `{"error":[]}`, `prompt is too long: 5 tokens > 4 maximum`, `[]`, ``,
	} {
		outcome, _ := pumped(modelWithResponse(t, badRequest(body)))
		wantFailed(t, outcome, messageRefused)
	}
}

func TestOverflowOf_ImplausibleSizes_Unknown(t *testing.T) {
	for _, body := range []string{
		`{"error":{"type":"exceed_context_size_error","n_prompt_tokens":-1,"n_ctx":9000000000000}}`,
		`{"error":{"message":"prompt is too long: 9000000000000 tokens > ` + strings.Repeat("9", 40) + ` maximum"}}`,
	} {
		if size, ok := overflowOf([]byte(body)); !ok || size != (overflow{}) {
			t.Errorf("%s: got %+v, %v", body, size, ok)
		}
	}
}
