package models

import (
	"slices"
	"sync"
)

const (
	// minEstimate is the smallest prompt that shows the ratio, in tokens of our estimate. A provider adds the same few tokens to
	// each prompt, for its chat template, and they would dominate the ratio of a smaller prompt.
	minEstimate = 64
	// maxWeight is the highest weight of one prompt. A prompt of 1,024 tokens shows the ratio within a few percent, so a larger one
	// must not outvote many others.
	maxWeight = 1024
	// minScale and maxScale bound the ratio. No tokenizer of a chat model needs half as many tokens as ours, which have up to
	// 200,000 words: a lower figure is that of a cut prompt (Ollama) or one without its cached part. A tokenizer
	// that knows only bytes needs 4 to 5 times as many tokens for English. A higher figure than 8 contains something else
	// than our prompt, for example a long system prompt of the provider.
	minScale, maxScale = 0.5, 8
	// remembered is the number of newest prompts that count. After a model was replaced, 24 prompts are enough to show its ratio.
	remembered = 32
)

// scale is the running ratio of the provider's tokens to the tokens of our estimate.
//
// It is the weighted upper quartile of the ratios of the newest 32 prompts: three quarters of the weight is at or below it. The
// weight of a prompt is its size, because the fixed tokens of a chat template distort the ratio of a small prompt. The quartile
// ignores any number of figures that are too low, up to three quarters of the weight, and figures that are too high, up to a
// quarter. The two sides differ because the errors differ: a ratio that is too low makes prompts that the provider refuses or
// cuts, and a ratio that is too high only leaves some room unused. Ratios outside the bounds are not ratios of tokenizers, and
// are ignored.
//
// The zero value has learned nothing. The methods may be called from any goroutine.
type scale struct {
	mu     sync.Mutex
	newest [remembered]sample // guarded by mu; a ring
	count  int                // guarded by mu; number of samples ever; the next one replaces newest[count % remembered]
	ratio  float64            // guarded by mu; 0 until the first sample
}

// sample is the ratio of one prompt.
type sample struct{ ratio, weight float64 }

// observe learns from one prompt: the estimated and the actual number of tokens.
func (s *scale) observe(estimated, actual int) {
	if estimated < minEstimate || actual <= 0 {
		return
	}
	ratio := float64(actual) / float64(estimated)
	if ratio < minScale || ratio > maxScale {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest[s.count%remembered] = sample{ratio, float64(min(estimated, maxWeight))}
	s.count++
	s.ratio = upperQuartile(s.newest, min(s.count, remembered))
}

// upperQuartile returns the smallest ratio of the first n samples for which the samples with at most this ratio have three
// quarters of the weight.
func upperQuartile(samples [remembered]sample, n int) float64 {
	sorted := samples[:n]
	slices.SortFunc(sorted, func(a, b sample) int {
		if a.ratio < b.ratio {
			return -1
		}
		return 1
	})
	total, below := 0.0, 0.0
	for _, s := range sorted {
		total += s.weight
	}
	for _, s := range sorted {
		if below += s.weight; below >= total*3/4 {
			return s.ratio
		}
	}
	return sorted[n-1].ratio
}

// get returns the ratio; 1 if nothing is learned.
func (s *scale) get() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ratio == 0 {
		return 1
	}
	return s.ratio
}
