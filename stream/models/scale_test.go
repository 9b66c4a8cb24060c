package models

import (
	"math"
	"strconv"
	"testing"
)

// prompt is a finished request: our estimate and the provider's figure.
type prompt struct{ estimated, actual int }

// repeat returns n times p.
func repeat(n int, p ...prompt) (all []prompt) {
	for range n {
		all = append(all, p...)
	}
	return all
}

func join(lists ...[]prompt) (all []prompt) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// Each prompt is of another account.
func TestScale_EachHistory_RatioOfTokenizer(t *testing.T) {
	for name, test := range map[string]struct {
		prompts []prompt
		want    float64
	}{
		"nothing":                             {nil, 1},
		"one prompt":                          {[]prompt{{1000, 2000}}, 2},
		"a tokenizer with larger tokens":      {repeat(5, prompt{1000, 900}), 0.9},
		"tiny prompts are ignored":            {join([]prompt{{1000, 1100}}, repeat(40, prompt{63, 200})), 1.1},
		"only tiny prompts":                   {repeat(40, prompt{12, 40}), 1},
		"no figure from the provider":         {repeat(5, prompt{1000, 0}), 1},
		"negative figures":                    {[]prompt{{-5, 10}, {1000, -10}}, 1},
		"cut prompts (Ollama)":                {join([]prompt{{1000, 1200}}, repeat(40, prompt{3000, 512})), 1.2},
		"most of each prompt is cached":       {join([]prompt{{1000, 1500}}, repeat(40, prompt{1000, 30})), 1.5},
		"half of each third prompt is cached": {repeat(20, prompt{1000, 1500}, prompt{1000, 1500}, prompt{1000, 750}), 1.5},
		"too low in 4 of 10":                  {repeat(3, join(repeat(4, prompt{1000, 600}), repeat(6, prompt{1000, 1500}))...), 1.5},
		"too high in 4 of 10":                 {repeat(3, join(repeat(4, prompt{1000, 5000}), repeat(6, prompt{1000, 1500}))...), 1.5},
		"beyond any tokenizer":                {join([]prompt{{1000, 1500}}, repeat(40, prompt{64, 2500})), 1.5},
		"a fixed prefix in small prompts":     {join(repeat(16, prompt{64, 264}), repeat(6, prompt{4000, 4200})), 1.05},
		"one huge prompt among others":        {join(repeat(20, prompt{500, 1000}), []prompt{{1_000_000, 5_000_000}}), 2},
		"the model was replaced":              {join(repeat(100, prompt{1000, 1000}), repeat(17, prompt{1000, 2000})), 2},
		"the new model needs fewer":           {join(repeat(100, prompt{1000, 2000}), repeat(16, prompt{1000, 1000})), 1},
		"lowest and highest ratio":            {[]prompt{{100, 50}, {200, 1600}}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			m := New("a", idle{}, 0)
			for i, p := range test.prompts {
				m.ObservePrompt(strconv.Itoa(i), p.estimated, p.actual)
			}
			if got := m.Scale(); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("the ratio is %v, want %v", got, test.want)
			}
		})
	}
}

// Runs of spaces have a ratio of 7 with some tokenizers.
func TestScale_OneAccountSendsSpaces_OthersDecide(t *testing.T) {
	m := New("a", idle{}, 0)
	for i := range 3 {
		m.ObservePrompt(strconv.Itoa(i), 500, 500)
	}
	for range 100 {
		m.ObservePrompt("spaces", 1024, 7*1024)
	}
	if got := m.Scale(); got != 1 {
		t.Errorf("after 100 prompts of one account, the ratio is %v, want 1", got)
	}
}

// One account has the service for itself, and its prompts differ.
func TestScale_OneAccount_MeanOfNewestPrompts(t *testing.T) {
	m := New("a", idle{}, 0)
	m.ObservePrompt("a", 1000, 1000)
	m.ObservePrompt("a", 1000, 2000)
	if got := m.Scale(); got != 1.5 {
		t.Errorf("after two prompts, the ratio is %v, want 1.5", got)
	}
	for range 100 {
		m.ObservePrompt("a", 1000, 3000)
	}
	if got := m.Scale(); math.Abs(got-3) > 0.001 {
		t.Errorf("after the model was replaced, the ratio is %v, want 3", got)
	}
	m.ObservePrompt("a", 1000, 7000)
	if got := m.Scale(); got > 3.5 {
		t.Errorf("after one odd prompt, the ratio is %v, want at most 3.5", got)
	}
}

func TestScale_ManyAccounts_SilentOnesForgotten(t *testing.T) {
	m := New("a", idle{}, 0)
	for i := range 10 * remembered {
		m.ObservePrompt("active", 1000, 1000)
		m.ObservePrompt(strconv.Itoa(i), 1000, 1000)
	}
	accounts := make(map[string]bool)
	for _, s := range m.scale.newest {
		accounts[s.account] = true
	}
	if len(accounts) != remembered || !accounts["active"] || !accounts[strconv.Itoa(9*remembered+1)] || accounts[strconv.Itoa(9*remembered)] {
		t.Errorf("the accounts are %v, want the newest %d", accounts, remembered)
	}
}

func TestScale_AnyFigures_BoundedAndNoAllocation(t *testing.T) {
	m := New("a", idle{}, 0)
	if n := testing.AllocsPerRun(100, func() {
		for _, estimated := range []int{math.MinInt, -1, 0, 1, 64, 1024, math.MaxInt} {
			for _, actual := range []int{math.MinInt, -1, 0, 1, 64, 1024, math.MaxInt} {
				m.ObservePrompt("a", estimated, actual)
				if s := m.Scale(); !(s >= minScale && s <= maxScale) {
					t.Fatalf("after %d, %d: the ratio is %v", estimated, actual, s)
				}
			}
		}
	}); n > 0 {
		t.Errorf("learning allocates %v times", n)
	}
}
