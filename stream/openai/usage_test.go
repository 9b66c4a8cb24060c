package openai

import (
	"testing"

	"parley/stream"
)

func TestUsage_ImplausibleNumbers_Ignored(t *testing.T) {
	for data, want := range map[string]bool{
		`{"usage":{"prompt_tokens":1,"completion_tokens":2}}`:                                         true,
		`{"usage":{"prompt_tokens":1000000000,"completion_tokens":0}}`:                                true,
		`{"usage":{"prompt_tokens":0,"completion_tokens":0}}`:                                         false,
		`{"usage":{"prompt_tokens":-1,"completion_tokens":2}}`:                                        false,
		`{"usage":{"prompt_tokens":9000000000000000000,"completion_tokens":1}}`:                       false,
		`{"usage":{"prompt_tokens":1,"completion_tokens":9000000000000000000,"total_tokens":"many"}}`: false,
	} {
		c, err := decodeChunk([]byte(data))
		if err != nil {
			t.Errorf("%s: %v", data, err)
			continue
		}
		if got := c.usage() != (stream.Usage{}); got != want {
			t.Errorf("usage accepted %s: %v, want %v", data, got, want)
		}
	}
}

func TestUsage_ReasoningTokens_PartOfCompletion(t *testing.T) {
	for data, want := range map[string]stream.Usage{
		// OpenAI, DeepSeek and vLLM count reasoning as a part of the completion.
		`"prompt_tokens":40,"completion_tokens":2506,"total_tokens":2546,"completion_tokens_details":{"reasoning_tokens":2500}`: {Prompt: 40, Completion: 2506, Reasoning: 2500},
		// xAI counts it beside the completion, and adds it to the total.
		`"prompt_tokens":40,"completion_tokens":6,"total_tokens":2546,"completion_tokens_details":{"reasoning_tokens":2500}`: {Prompt: 40, Completion: 2506, Reasoning: 2500},
		`"prompt_tokens":40,"completion_tokens":6,"completion_tokens_details":{"reasoning_tokens":2500}`:                     {Prompt: 40, Completion: 2506, Reasoning: 2500},
		`"prompt_tokens":40,"completion_tokens":6,"total_tokens":46,"completion_tokens_details":{"reasoning_tokens":0}`:      {Prompt: 40, Completion: 6},
		`"prompt_tokens":40,"completion_tokens":6,"completion_tokens_details":{"reasoning_tokens":-1}`:                       {Prompt: 40, Completion: 6},
		`"prompt_tokens":40,"completion_tokens":6,"completion_tokens_details":"none"`:                                        {Prompt: 40, Completion: 6},
	} {
		event := []byte(`{"choices":[],"usage":{` + data + `}}`)
		c, err := decodeChunk(event)
		if err != nil || c.usage() != want {
			t.Errorf("%s: usage is %+v, %v, want %+v", data, c.usage(), err, want)
		}
		if scanned, ok := scanChunk(event); ok && scanned.usage != want {
			t.Errorf("%s: scanChunk returned %+v, want %+v", data, scanned.usage, want)
		}
	}
}
