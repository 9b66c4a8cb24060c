package openai

import (
	"encoding/json"
	"regexp"
	"strconv"

	"parley/stream"
)

// overflow holds the sizes in a provider's refusal of a request that the model's context cannot hold, in the provider's tokens; 0 if
// the refusal does not have them.
type overflow struct{ prompt, context int }

// overflowCodes are the codes and types of such refusals. "exceed_context_size_error" is llama.cpp's, "context_length_exceeded" is
// OpenAI's.
var overflowCodes = map[string]bool{
	"exceed_context_size_error": true, "context_length_exceeded": true, "context_window_exceeded": true, "model_context_window_exceeded": true,
}

// overflowTexts recognises such refusals of servers that send no code for them. The groups are named prompt and context. Each text is
// anchored at its beginning: a provider may quote the prompt in any other error, and the prompt could contain these words.
var overflowTexts = compile(
	// OpenAI, Azure, DeepSeek, OpenRouter, vLLM, llama-cpp-python, NVIDIA Dynamo
	tooLongFor+`[.,] however,? your (?:messages|prompt|request) (?:resulted in|has|contains) (?P<prompt>\d+)`,
	tooLongFor+`[.,] however,? you requested (?:about )?\d+ tokens \((?P<prompt>\d+) (?:in the messages|in your prompt|of text input)`,
	tooLongFor+`[.,] however,? you requested \d+ output tokens and your prompt contains (?:at least )?(?P<prompt>\d+)`,
	`'?max_(?:completion_)?tokens'?.{0,40} is too large: \d+\. `+tooLongFor+` and your request has (?P<prompt>\d+) input tokens`,
	tooLongFor,
	// llama.cpp; versions without a code sent the second text
	`(?:the )?request \((?P<prompt>\d+) tokens\) exceeds the available context size \((?P<context>\d+) tokens\)`,
	`the request exceeds the available context size`,
	// Ollama
	`(?:the )?(?:input|prompt) (?:length exceeds|is longer than|exceeds) (?:the |maximum |the maximum )?context length`,
	// LM Studio
	`Trying to keep the first (?P<prompt>\d+) tokens when context (?:the )?overflows.{0,80} context length of only (?P<context>\d+) tokens`,
	`The number of tokens to keep from the initial prompt is greater than the context length(?: \(n_keep: ?(?P<prompt>\d+) ?>= ?n_ctx: ?(?P<context>\d+)\))?`,
	// SGLang
	`The input \((?P<prompt>\d+) tokens\) is longer than the model's context length \((?P<context>\d+) tokens\)`,
	`Requested token count exceeds the model's maximum context length of (?P<context>\d+) tokens\. You requested a total of \d+ tokens: (?P<prompt>\d+) tokens`,
	// Hugging Face TGI
	"(?:Input validation error: )?`inputs` tokens \\+ `max_new_tokens` must be <= (?P<context>\\d+)\\. Given: (?P<prompt>\\d+) `inputs` tokens",
	// Mistral, Anthropic, Gemini
	`Prompt contains (?P<prompt>\d+) tokens.{0,40} too large for model with (?P<context>\d+) maximum context length`,
	`prompt is too long: (?P<prompt>\d+) tokens > (?P<context>\d+) maximum`,
	`The input token count \((?P<prompt>\d+)\) exceeds the maximum number of tokens allowed \((?P<context>\d+)\)`,
)

// tooLongFor begins the texts of OpenAI, and of servers that copy them.
const tooLongFor = `This (?:model|endpoint)'s maximum context length is (?P<context>\d+) tokens`

func compile(texts ...string) (all []*regexp.Regexp) {
	for _, text := range texts {
		all = append(all, regexp.MustCompile(`(?is)^\s*`+text))
	}
	return all
}

// overflowOf returns the sizes in an error response or in an error event. ok is false for any other error.
func overflowOf(body []byte) (size overflow, ok bool) {
	type problem struct {
		Message, Code, Type any
		Prompt              int `json:"n_prompt_tokens"`
		Context             int `json:"n_ctx"`
	}
	var sent struct { // vLLM's old versions send the fields of problem without the field error
		problem
		Error json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(body, &sent) // body may have any form; sent then has the fields that could be decoded
	p := sent.problem
	if !isNull(sent.Error) {
		p = problem{}
		if json.Unmarshal(sent.Error, &p) != nil && p.Message == nil {
			_ = json.Unmarshal(sent.Error, &p.Message) // LM Studio: the field error is the text
		}
	}
	if text, isText := p.Message.(string); isText {
		size, ok = overflowIn(text)
	}
	for _, word := range []any{p.Code, p.Type} {
		if code, isText := word.(string); isText && overflowCodes[code] {
			ok = true
		}
	}
	if p.Prompt > 0 || p.Context > 0 {
		size = overflow{p.Prompt, p.Context}
	}
	return size.plausible(), ok
}

// overflowIn returns the sizes in the text of an error. ok is false if the text is none of overflowTexts.
func overflowIn(text string) (size overflow, ok bool) {
	for _, known := range overflowTexts {
		groups := known.FindStringSubmatch(text)
		if groups == nil {
			continue
		}
		for i, name := range known.SubexpNames() {
			n, err := strconv.Atoi(groups[i])
			switch {
			case err != nil: // the alternative with this group did not match
			case name == "prompt":
				size.prompt = n
			case name == "context":
				size.context = n
			}
		}
		return size, true
	}
	return overflow{}, false
}

// plausible returns the sizes, with 0 for a size that no model has.
func (o overflow) plausible() overflow {
	if o.prompt < 0 || o.prompt > maxUsage {
		o.prompt = 0
	}
	if o.context < 0 || o.context > maxUsage {
		o.context = 0
	}
	return o
}

// tooLong returns the error for a request that the model's context cannot hold.
func tooLong(c *cause, size overflow) *stream.ModelError {
	return &stream.ModelError{
		Code: stream.CodeContextTooLong, Message: messageTooLong, Cause: c, PromptTokens: size.prompt, ContextTokens: size.context,
	}
}
