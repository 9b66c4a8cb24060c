package models

import (
	"testing"
	"time"

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
		"configured, and a smaller refusal":          {8192, []func(*Model){refusal(4096)}, 8192, Configured},
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

func TestContext_Refusal_CountsForTenMinutes(t *testing.T) {
	start := time.Now()
	const late = refusalLife - time.Second
	for name, test := range map[string]struct {
		sizes  []int           // of refusals
		at     []time.Duration // the times of the refusals
		now    time.Duration
		tokens int
	}{
		"at first":                         {[]int{512}, []time.Duration{0}, 0, 512},
		"just before the end":              {[]int{512}, []time.Duration{0}, late, 512},
		"at the end":                       {[]int{512}, []time.Duration{0}, refusalLife, 2048},
		"refused again":                    {[]int{512, 512}, []time.Duration{0, late}, refusalLife, 512},
		"a larger refusal adds no time":    {[]int{512, 1024}, []time.Duration{0, late}, refusalLife, 2048},
		"a larger refusal after the end":   {[]int{512, 1024}, []time.Duration{0, refusalLife}, refusalLife, 1024},
		"a smaller refusal before the end": {[]int{1024, 512}, []time.Duration{0, late}, refusalLife, 512},
	} {
		t.Run(name, func(t *testing.T) {
			c := &contextSize{}
			c.found(openai.Found{ContextTokens: 2048, Source: openai.Listed})
			for i, tokens := range test.sizes {
				c.refusedAt(tokens, start.Add(test.at[i]))
			}
			if tokens, source := c.get(start.Add(test.now)); tokens != test.tokens {
				t.Errorf("got %d (%s), want %d", tokens, source, test.tokens)
			}
		})
	}
}
