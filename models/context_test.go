package models

import (
	"testing"

	"parley/stream/openai"
)

func TestContext_EachSource_BestOneCounts(t *testing.T) {
	probe := func(tokens int, source openai.Source) func(*Model) {
		return func(m *Model) { m.context.found(openai.Found{ContextTokens: tokens, Source: source}) }
	}
	refusal := func(tokens int) func(*Model) { return func(m *Model) { m.ObserveContext(tokens) } }
	away := func(m *Model) { m.context.forget() }
	for name, test := range map[string]struct {
		configured int
		events     []func(*Model)
		tokens     int
		source     Source
	}{
		"nothing":                                    {0, nil, 0, Unknown},
		"configured":                                 {8192, nil, 8192, Configured},
		"configured, and a probe":                    {8192, []func(*Model){probe(4096, openai.Listed)}, 8192, Configured},
		"configured, and a smaller refusal":          {8192, []func(*Model){refusal(4096)}, 4096, Refusal},
		"configured, and a larger refusal":           {4096, []func(*Model){refusal(8192)}, 4096, Configured},
		"probe":                                      {0, []func(*Model){probe(512, openai.Props)}, 512, "props"},
		"probe without a size":                       {0, []func(*Model){probe(512, openai.Props), probe(0, "")}, 512, "props"},
		"refusal":                                    {0, []func(*Model){refusal(512)}, 512, Refusal},
		"refusal without a size":                     {0, []func(*Model){refusal(0), refusal(-1)}, 0, Unknown},
		"two refusals":                               {0, []func(*Model){refusal(512), refusal(1024)}, 512, Refusal},
		"smaller refusal after a probe":              {0, []func(*Model){probe(2048, openai.Show), refusal(512)}, 512, Refusal},
		"larger refusal after a probe":               {0, []func(*Model){probe(512, openai.Listed), refusal(1024)}, 512, "listed"},
		"first probe after a refusal":                {0, []func(*Model){refusal(512), probe(2048, openai.Show)}, 512, Refusal},
		"next probe with the same size":              {0, []func(*Model){probe(2048, openai.Show), refusal(512), probe(2048, openai.Show)}, 512, Refusal},
		"next probe with another size":               {0, []func(*Model){probe(2048, openai.Show), refusal(512), probe(4096, openai.Listed)}, 4096, "listed"},
		"probe after the server was away":            {0, []func(*Model){probe(2048, openai.Show), refusal(512), away, probe(2048, openai.Show)}, 2048, "show"},
		"refusal after the server was away, no size": {0, []func(*Model){refusal(512), away}, 0, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			m := New("a", idle{}, test.configured)
			for _, e := range test.events {
				e(m)
			}
			if tokens, source := m.Context(); tokens != test.tokens || source != test.source || m.ContextTokens() != tokens {
				t.Errorf("got %d (%s), want %d (%s)", tokens, source, test.tokens, test.source)
			}
		})
	}
}
