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
